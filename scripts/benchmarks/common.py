"""Common functions of the benchmarks: flags, the model, interleaved timing, peak memory, tables and result files.

A result file belongs to a commit. `run` and `save` therefore refuse to write one into the repository while the working
tree has changes. Result files that are not committed yet are ignored.
"""

import ctypes
import gc
import importlib.metadata
import itertools
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from absl import flags

from trainers.support import command_line

FLAGS = flags.FLAGS
ROOT = Path(__file__).parents[2]
RESULTS = "scripts/results"
BACKENDS = ("tensorflow", "jax", "torch")
MODEL_FLAGS = {
    "vocabulary_size": (flags.DEFINE_integer, "Number of words."),
    "cutoffs": (flags.DEFINE_list, "First id of every band except the first; empty for the plain softmax."),
    "num_blocks": (flags.DEFINE_integer, "Number of Transformer blocks."),
    "dim": (flags.DEFINE_integer, "Dimension of the hidden states."),
    "ffn_dim": (flags.DEFINE_integer, "Width of the feed-forward layers."),
    "num_heads": (flags.DEFINE_integer, "Number of attention heads."),
}
PACKAGES = ("keras", "tensorflow", "tensorflow-cpu", "jax", "jaxlib", "torch", "triton", "numpy")
# These variables affect the speed. A program uses all cores unless the variables of the threads limit it.
THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
MEMORY = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")
ENVIRONMENT = ("XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS", *MEMORY, *THREADS)
SETTLE = 0.25  # seconds between two calls on a CPU, after which the threads of the first call are idle

flags.disclaim_key_flags()  # the flags defined here belong to the benchmark, whose --help shows them


def run(main, define_flags):
    """Runs a benchmark like `trainers.support.command_line.run`, on --backend if it has that flag.

    It fails before the measurements if --results could not be written afterwards.
    """

    def checked():
        if "backend" in FLAGS:
            choose_backend(FLAGS.backend)
        check_results()
        main()

    command_line.run(checked, define_flags)


def define_flags(repeats, help="Number of timed turns.", **model):
    """Defines --backend, --repeats, --results and the flags of the model; see `define_model_flags`."""
    flags.DEFINE_enum("backend", "torch", BACKENDS, "Backend of Keras.")
    flags.DEFINE_integer("repeats", repeats, help, lower_bound=1)
    command_line.define_path("results", None, "JSON file to write. It needs a clean working tree.")
    define_model_flags(**model)


def define_model_flags(**defaults):
    """Defines flags of `MODEL_FLAGS` with the defaults of a benchmark."""
    for name, default in defaults.items():
        define, help = MODEL_FLAGS[name]
        define(name, default, help, **({} if define is flags.DEFINE_list else {"lower_bound": 1}))


def cutoffs():
    """Returns --cutoffs as integers."""
    return tuple(int(cutoff) for cutoff in FLAGS.cutoffs)


def build(**arguments):
    """Builds the `transformer_lm` of the flags, with further arguments and always the same random weights."""
    import keras

    from keras_adaptive.models import transformer_lm

    keras.utils.set_random_seed(1)
    sizes = {name: FLAGS[name].value for name in ("dim", "num_blocks", "num_heads", "ffn_dim")}
    return transformer_lm(FLAGS.vocabulary_size, **{**sizes, "cutoffs": cutoffs(), **arguments})


def time_interleaved(candidates, repeats, warmup=2, timed=False):
    """Times functions without arguments in turns. Each turn calls every function once.

    A drift of the machine affects all functions equally, so that ratios of medians are reliable even if single times
    are not.

    Args:
        candidates: `{name: function}`. A function must not return before its result is computed, except for results of
            PyTorch on a GPU.
        repeats: Number of timed turns.
        warmup: Number of turns before them that are not timed.
        timed: Whether a function returns a list of its own measurements in seconds.

    Returns:
        `{name: [seconds]}`.
    """
    from keras_adaptive.backend.accelerator import on_accelerator

    seconds = {name: [] for name in candidates}
    pause = 0 if on_accelerator() else SETTLE
    for turn in range(warmup + repeats):
        for name, function in candidates.items():
            gc.collect()
            time.sleep(pause)
            start = time.perf_counter()
            result = function()
            wait()
            measured = result if timed else [time.perf_counter() - start]
            if turn >= warmup:
                seconds[name] += measured
    return seconds


def compiled_step(function, variables, *arguments):
    """Returns a function that calls `function(*arguments)`, compiled as in training, and waits for its results.

    Pass data as arguments: a compiler computes results in advance if they depend only on constants.
    """
    import keras

    from keras_adaptive.backend.compiled import compiled

    if keras.config.backend() == "tensorflow":
        run = compiled(function, variables)
        return lambda: run(*arguments)  # TensorFlow returns when the result is computed
    if keras.config.backend() == "jax":
        import jax

        pure = compiled(function, variables)
        return lambda: jax.block_until_ready(pure(*arguments))

    def run():
        result = function(*arguments)
        wait()
        return result

    return run


def matrix_products(shapes, dtype):
    """Returns a function that computes products x·kernel and their gradients, compiled as in training.

    Every product is its own upstream gradient, so that it is computed in spite of optimizing compilers.

    Args:
        shapes: List of pairs of shapes: x (…, rows, inner) and its kernel (…, inner, columns).
        dtype: Dtype policy, whose compute dtype all tensors have.
    """
    import keras
    from keras import ops

    random, dtype = np.random.default_rng(0), keras.dtype_policies.get(dtype).compute_dtype
    normal = lambda shape: random.standard_normal(shape, "float32")  # noqa: E731
    factors = [[keras.Variable(normal(shape), dtype=dtype, trainable=False) for shape in pair] for pair in shapes]

    def gradients(x, kernel):
        product = ops.matmul(x, kernel)
        return ops.matmul(product, ops.swapaxes(kernel, -1, -2)), ops.matmul(ops.swapaxes(x, -1, -2), product)

    def function():
        return [gradients(*map(ops.convert_to_tensor, pair)) for pair in factors]

    return compiled_step(function, [variable for pair in factors for variable in pair])


def band_counts(ids):
    """Returns a list with the number of ids in every band of --cutoffs."""
    return np.histogram(ids, (0, *cutoffs(), FLAGS.vocabulary_size))[0].tolist()


def loss_products(targets, dim, factor=4):
    """Returns the shapes, for `matrix_products`, of the products of an adaptive softmax with the given targets."""
    edges, counts = (0, *cutoffs(), FLAGS.vocabulary_size), band_counts(targets)
    shapes = [((targets.size, dim), (dim, edges[1]))]
    for band, (low, high) in enumerate(itertools.pairwise(edges)):
        if band and counts[band]:
            narrow = dim // factor**band
            shapes += [((counts[band], dim), (dim, narrow)), ((counts[band], narrow), (narrow, high - low))]
    return shapes


def torch_device():
    """Returns the name of the device for the tensors of a peer that is written in PyTorch."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def wait():
    """Waits for everything that PyTorch computes on a GPU, if the process uses PyTorch."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def differentiated(function, arguments, model):
    """Returns the float value of `function(*arguments)` and its gradients with respect to the weights of a model."""
    from keras_adaptive.backend.gradients import value_and_gradients

    variables = model.trainable_variables, model.non_trainable_variables
    (value, _), gradients = value_and_gradients(lambda *data: (function(*data), ()), arguments, *variables)
    return value, gradients


def spread(values):
    """Returns the median, the smallest and the largest of several measurements."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "repeats": len(values)}


def milliseconds(seconds, digits=0):
    """Returns two cells of a table: the median of `spread` and its span."""
    low, median, high = (f"{1e3 * seconds[key]:.{digits}f}" for key in ("low", "median", "high"))
    return median, f"{low}–{high}"


def number_of_process(program, arguments, **environment):
    """Runs a benchmark in a separate process, and returns the integer that it prints last.

    The process returns freed memory to Linux, as glibc does by default, so that it can measure its memory.

    Args:
        program: Name of the module in `scripts.benchmarks`.
        arguments: Flags of the benchmark.
        environment: Additional environment variables.
    """
    command = [sys.executable, "-m", f"scripts.benchmarks.{program}", *arguments]
    environment = {**os.environ, "MALLOC_PERTURB_": "0", **environment}  # the default of glibc, see keep_freed_memory
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def peak_bytes(function):
    """Returns the number of bytes by which the resident memory rises while `function` runs. It needs Linux.

    The result of `function` is included. Call `function` once before, so that compilers and thread pools have allocated
    their memory.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current level
    before = status("VmRSS")
    result = function()
    peak = status("VmHWM")
    del result
    return peak - before


def device_peak_bytes(function, library):
    """Returns the number of bytes by which the memory of a GPU rises while `function` runs, or `None` if unknown.

    The result of `function` is included, and under PyTorch what its first call allocates is not. The peak of JAX cannot
    be reset and is known only if it exceeds all earlier ones: measure first calls, and smaller cases first. `library`
    is the one that computes: "torch" or "jax".
    """
    gc.collect()
    if library == "torch":
        import torch

        if not torch.cuda.is_available():
            return None
        function()
        wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = function()
        wait()
        peak = torch.cuda.max_memory_allocated()
    elif library == "jax":
        import jax

        memory = lambda: jax.local_devices()[0].memory_stats()  # noqa: E731
        if not (old := memory()):  # a CPU
            return None
        before, result = old["bytes_in_use"], function()
        peak = memory()["peak_bytes_in_use"]
        peak = None if peak == old["peak_bytes_in_use"] else peak
    else:
        return None
    del result
    return peak and peak - before


def status(field, process="self"):
    """Returns a size of a process in bytes, on Linux: VmRSS is its resident memory, and VmHWM is the peak."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def machine(device=None):
    """Returns the hardware, the versions of packages, `ENVIRONMENT` and the commit, for a result file.

    A copy of the sources without their history takes the commit from the variable KERAS_ADAPTIVE_COMMIT.
    """
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = os.environ.get("KERAS_ADAPTIVE_COMMIT") or git("describe", "--always") + ("-dirty" if changes() else "")
    hardware = {"device": device or processor(), "cores": os.cpu_count()}
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    return {**hardware, "versions": versions, "environment": environment, "commit": commit}


def git(*arguments):
    """Returns the output of a git command in the repository. It is empty outside of a repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def changes():
    """Returns the changed files of the working tree, except for result files."""
    return [line.split(maxsplit=1)[1] for line in git("status", "--porcelain", ".", f":!{RESULTS}").splitlines()]


def check_results():
    """Raises a ValueError if --results is another file, or is in the repository and the working tree has changes."""
    from keras_adaptive.files import check_result

    if FLAGS.results:
        check_result(FLAGS.results, ("machine", "settings"))
    inside = FLAGS.results and ROOT.resolve() in Path(FLAGS.results).resolve().parents
    if inside and (changed := changes()):
        raise ValueError(
            f"--results in the repository must come from a commit, but {changed[0]} has changes: commit or stash them, "
            f"or write outside the repository. Received: --results={FLAGS.results}."
        )


def processor():
    """Returns the name of the processor, if Linux provides it, and its units for bfloat16."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    units = {unit for line in lines if line.startswith("flags") for unit in line.split()} & {"amx_bf16", "avx512_bf16"}
    return ", ".join([names[0] if names else platform.processor(), *sorted(units)])


def save(names, settings=None, **figures):
    """Writes figures as JSON to --results, with the machine and the settings.

    Args:
        names: Names of the flags that are settings.
        settings: Dict of other settings.
        figures: The measurements.

    Raises:
        ValueError: If `check_results` raises it.
    """
    from keras_adaptive.files import write_json

    if not FLAGS.results:
        return
    check_results()
    settings = {**(settings or {}), **{name: FLAGS[name].value for name in names}}
    write_json(FLAGS.results, {"machine": machine(), "settings": settings, **figures})
    print(f"Written to {FLAGS.results}", flush=True)


def print_table(header, rows):
    """Prints a table. The first column is aligned to the left, and the others to the right."""
    rows = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
        print("  ".join([row[0].ljust(widths[0]), *cells]), flush=True)


def last_line(error):
    """Returns the last line of the message of an error, without the path of a module, or the type of the error."""
    return re.sub(r" \(/\S+\)$", "", (str(error).strip().splitlines() or [type(error).__name__])[-1])


def choose_backend(name):
    """Makes Keras use a backend. It must be called before Keras is imported."""
    if "keras" in sys.modules and sys.modules["keras"].config.backend() != name:
        raise RuntimeError("The backend must be chosen before Keras is imported, but Keras is imported already.")
    os.environ["KERAS_BACKEND"] = name
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
