"""Common functions of the benchmarks: flags, the model, interleaved timing, tables and result files.

A result file belongs to a commit. `run` and `save` therefore refuse to write one into the repository while the working
tree has changes. Result files that are not committed yet are ignored.
"""

import gc
import importlib.metadata
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags

from trainers.support import command_line
from trainers.support.tables import aligned

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
WIKITEXT103 = dict(  # the paper's model, scaled to fit two cores
    vocabulary_size=267_744, cutoffs=["20000", "60000"], num_blocks=8, dim=512, ffn_dim=2048, num_heads=8
)
BOOKS = dict(  # the model of the README
    vocabulary_size=49_456, cutoffs=["4000", "16000"], num_blocks=4, dim=256, ffn_dim=1024, num_heads=8
)
SETTLE = 0.25  # seconds between two calls on a CPU, after which the threads of the first call are idle


class Case(NamedTuple):
    """What a benchmark measures with a value of --case.

    Attributes:
        function: Function without arguments that measures, prints and saves.
        defaults: Defaults of flags that differ from those of the program.
        required: Names of flags that must be given.
        backends: Backends that it runs on.
    """

    function: Callable
    defaults: dict = {}
    required: tuple[str, ...] = ()
    backends: tuple[str, ...] = BACKENDS


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


def define_flags(repeats, **model):
    """Defines --backend, --repeats, --results and the flags of the model; see `define_model_flags`."""
    flags.DEFINE_enum("backend", "torch", BACKENDS, "Backend of Keras.")
    flags.DEFINE_integer("repeats", repeats, "Number of timed turns.", lower_bound=1)
    command_line.define_path("results", None, "JSON file to write. It needs a clean working tree.")
    define_model_flags(**model)


def define_model_flags(**defaults):
    """Defines flags of `MODEL_FLAGS` with the defaults of a benchmark."""
    for name, default in defaults.items():
        define, help = MODEL_FLAGS[name]
        define(name, default, help, **({} if define is flags.DEFINE_list else {"lower_bound": 1}))


def define_case(cases):
    """Defines --case for `{name: Case}`, the first of which is the default."""
    flags.DEFINE_enum("case", next(iter(cases)), list(cases), "What to measure.")


def run_case(cases):
    """Runs --case with its flags on --backend."""
    case = cases[FLAGS.case]
    for name in case.required:
        if not FLAGS[name].value:
            raise ValueError(f"--case={FLAGS.case} needs --{name}.")
    if FLAGS.backend not in case.backends:
        only = " or ".join(case.backends)
        raise ValueError(f"--case={FLAGS.case} needs --backend={only}. Received: --backend={FLAGS.backend}.")
    for name, value in case.defaults.items():
        FLAGS.set_default(name, value)
    case.function()


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


def give_tails_their_share(model, random):
    """Sets the columns of the tails along the mean hidden state, so that each has its probability of --tail_shares."""
    from keras import ops

    hidden = ops.convert_to_numpy(model(log_uniform(random, (256, 20), FLAGS.vocabulary_size))[:, -1])
    logits = hidden @ ops.convert_to_numpy(model.word_output.tables[0]).T
    shares = np.array([float(share) for share in FLAGS.tail_shares])
    goals = np.log(np.exp(logits).sum(-1)).mean() + np.log(shares / (1 - shares.sum()))
    mean = hidden.mean(0)
    model.word_output.class_table.assign(np.outer(goals, mean / (mean @ mean)))


def zipf(shape):
    """Returns ids by Zipf's law, p ∝ 1/(rank + 2.7)."""
    probabilities = 1.0 / (np.arange(FLAGS.vocabulary_size) + 2.7)
    chosen = np.random.default_rng(0).choice(FLAGS.vocabulary_size, shape, p=probabilities / probabilities.sum())
    return chosen.astype("int32")


def log_uniform(random, shape, count):
    """Returns ids from 0 to `count` - 1 whose logarithms are uniform, as words by Zipf's law are."""
    return np.exp(random.random(shape) * np.log(count)).astype("int32") - 1


def time_interleaved(candidates, repeats, warmup=2, timed=False):
    """Times functions without arguments in turns, each of which calls every function once: `{name: [seconds]}`.

    A drift of the machine affects all functions equally, so that ratios of medians are reliable even if single times
    are not. A function must not return before its result is computed, except for results of PyTorch on a GPU. If
    `timed`, it returns a list of its own measurements in seconds.
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


def times_of(candidates, warmup=2, timed=False, of=1):
    """Times functions in --repeats turns, and returns `{name: spread}` of the seconds of one of `of` equal parts."""
    seconds = time_interleaved(candidates, FLAGS.repeats, warmup, timed)
    return {name: spread([turn / of for turn in turns]) for name, turns in seconds.items()}


def print_times(candidates, digits=0, **columns):
    """Prints a table of times in ms, each relative to the first, and `columns`, `{header: {name: cell}}`.

    Figures in `candidates` are a `spread` or have one as `seconds`.
    """
    times = {name: figures.get("seconds", figures) for name, figures in candidates.items()}
    first = next(iter(times))
    rows = [
        [name, *milliseconds(time, digits), f"{time['median'] / times[first]['median']:.2f}"]
        + [cells.get(name, "") for cells in columns.values()]
        for name, time in times.items()
    ]
    print_table(["", "ms", "span", f"÷ {first}", *columns], rows)


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


def torch_device():
    """Returns the name of the device for the tensors of a peer that is written in PyTorch."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def wait():
    """Waits for everything that PyTorch computes on a GPU, if the process uses PyTorch."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def differentiated(function, arguments, trainable, others):
    """Returns the float value of `function(*arguments)`, and its gradients with respect to `trainable` variables."""
    from keras_adaptive.backend.gradients import value_and_gradients

    (value, _), gradients = value_and_gradients(lambda *data: (function(*data), ()), arguments, trainable, others)
    return value, gradients


def spread(values):
    """Returns the median, the smallest and the largest of several measurements."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "repeats": len(values)}


def milliseconds(seconds, digits=0):
    """Returns two cells of a table: the median of `spread` and its span."""
    low, median, high = (f"{1e3 * seconds[key]:.{digits}f}" for key in ("low", "median", "high"))
    return median, f"{low}–{high}"


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
    """Writes figures as JSON to --results, with the machine, the flags `names` and other settings."""
    from keras_adaptive.files import write_json

    if not FLAGS.results:
        return
    check_results()
    names = [*(["case"] if "case" in FLAGS else []), *names]
    settings = {**(settings or {}), **{name: FLAGS[name].value for name in names}}
    write_json(FLAGS.results, {"machine": machine(), "settings": settings, **figures})
    print(f"Written to {FLAGS.results}", flush=True)


def print_table(header, rows):
    """Prints a table. The first column is aligned to the left, and the others to the right."""
    print(*aligned([header, *rows]), sep="\n", flush=True)


def last_line(error):
    """Returns the last line of the message of an error, without the path of a module, or the type of the error."""
    return re.sub(r" \(/\S+\)$", "", (str(error).strip().splitlines() or [type(error).__name__])[-1])


def choose_backend(name):
    """Makes Keras use a backend. It must be called before Keras is imported."""
    if "keras" in sys.modules and sys.modules["keras"].config.backend() != name:
        raise RuntimeError("The backend must be chosen before Keras is imported, but Keras is imported already.")
    os.environ["KERAS_BACKEND"] = name
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
