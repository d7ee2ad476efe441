"""Runs everything that a GPU should show on one backend; `on_gpu.sh` calls it.

    python -m scripts.benchmarks.on_gpu --backend=torch --folder=scripts/results/gpu --seconds=250
    python -m scripts.benchmarks.on_gpu --backend=torch --folder=/tmp/gpu --tiny     # on any machine, in a minute

Each part is a process with a time limit of its own, within --seconds for all. A part that fails is recorded with its
error. The figures are in one file per device, which is written after every part and contains both backends.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from absl import flags

from scripts.benchmarks import common
from trainers.support import command_line

FLAGS = flags.FLAGS
OPS = ("linear_cross_entropy", "sliced_cross_entropy", "attention", "recurrence")
LAYERS = ("outputs/test_adaptive_softmax", "bodies/test_bodies")
TESTS = [*(f"tests/ops/test_{name}.py" for name in OPS), *(f"tests/layers/{name}.py" for name in LAYERS)]
TESTS += ["tests/ops/context/test_context.py", "tests/optimizers/test_nag.py", "tests/models/test_training.py"]
# The model of Baevski and Auli 2019 on WikiText-103, configs/wikitext103_adp_t.flags.
WORDS = ["--vocabulary_size=267744", "--cutoffs=20000,60000", "--dim=1024"]
MODEL = [*WORDS, "--num_blocks=16", "--ffn_dim=4096", "--num_heads=8"]
TRAINING = [*MODEL, "--length=512", "--batch_size=32", "--product_size=8192", "--nopeers", "--noparts", "--repeats=5"]
BFLOAT16, FLOAT16, ROWS = "--dtype=mixed_bfloat16", "--dtype=mixed_float16", "--rows=8192,16384"
NARROW = [BFLOAT16, "--peer_dtype=bfloat16"]
PLAIN = [*WORDS, "--cutoffs=", "--rows=8192", *NARROW]
WORD = ["--case=cache", *MODEL, "--lengths=128", "--nouncached", "--repeats=50"]

TINY_WORDS = ["--vocabulary_size=2000", "--cutoffs=200", "--dim=32", "--repeats=1"]
TINY_MODEL = [*TINY_WORDS, "--num_blocks=1", "--ffn_dim=32", "--num_heads=2"]
TINY_TRAINING = [*TINY_MODEL, "--length=8", "--batch_size=2", "--product_size=16", "--nopeers", "--noparts"]
TINY_LOSS = [*TINY_WORDS, "--rows=32", "--nomemory"]
TINY_PLAIN = [*TINY_LOSS, "--vocabulary_size=300", "--cutoffs=", *NARROW]
TINY_WORD = ["--case=cache", *TINY_MODEL, "--lengths=3", "--nouncached"]
TASK = ["--case=task", "--dim=1024", "--rows=8192", "--repeats=5"]
TINY_TASK = ["--case=task", "--dim=16", "--vocabulary_size=300", "--rows=256", "--repeats=1", "--nomemory"]
LSTM = ["--case=recurrence"]
TINY_LSTM = [*LSTM, "--batch_size=2", "--length=3", "--input_dim=4", "--units=5", "--repeats=1"]
ITEMS = ["--case=update", "--repeats=5"]
TINY_ITEMS = [*ITEMS, "--items=300", "--dim=8", "--batch_size=2", "--num_samples=16", "--repeats=1", "--nomemory"]


class Part(NamedTuple):
    """A part of the measurements: a module of `scripts.benchmarks` or pytest, and its arguments.

    Attributes:
        seconds: Time limits under torch and under JAX, which compiles longer.
        tiny: Arguments for a test of the program on a CPU.
        exact: Whether JAX computes float32 products in float32, as PyTorch does, instead of the narrower TF32.
    """

    program: str
    seconds: tuple[float, float]
    arguments: list[str]
    tiny: list[str]
    exact: bool = False


PARTS = {  # the most important first, in case the time is up before the end
    "tests": Part("pytest", (80, 120), TESTS, ["tests/ops/test_bands.py"], exact=True),
    "training in bfloat16": Part("step", (80, 180), [*TRAINING, BFLOAT16], [*TINY_TRAINING, BFLOAT16]),
    "loss in bfloat16": Part("loss", (60, 120), [*WORDS, ROWS, *NARROW], [*TINY_LOSS, *NARROW]),
    "loss in float32": Part("loss", (60, 120), [*WORDS, ROWS], TINY_LOSS, exact=True),
    "recurrence": Part("layers", (50, 60), LSTM, TINY_LSTM, exact=True),
    "word of 1 row": Part("generation", (60, 90), WORD, TINY_WORD),
    "recommender of 1000000 items": Part("recommender", (60, 90), ITEMS, TINY_ITEMS),
    "plain softmax of 267744 words": Part("loss", (120, 120), [*PLAIN, "--repeats=3"], TINY_PLAIN),
    "task in bfloat16": Part("loss", (120, 240), [*TASK, BFLOAT16], [*TINY_TASK, BFLOAT16]),
    "task in float32": Part("loss", (120, 240), TASK, TINY_TASK, exact=True),
    "word of 32 rows": Part("generation", (60, 90), [*WORD, "--batch_size=32"], [*TINY_WORD, "--batch_size=2"]),
    "plain softmax of 50000 words": Part("loss", (100, 100), [*PLAIN, "--vocabulary_size=50000"], TINY_PLAIN),
    "training in float16": Part("step", (80, 180), [*TRAINING, FLOAT16], [*TINY_TRAINING, FLOAT16]),
}


def define_flags():
    flags.DEFINE_enum("backend", "torch", ["torch", "jax"], "Backend of Keras.")
    command_line.define_path("folder", "scripts/results/gpu", "Folder of the JSON file, named after the device.")
    flags.DEFINE_float("seconds", 540.0, "Time limit of all parts together.", lower_bound=0.0)
    flags.DEFINE_list("parts", list(PARTS), "Parts to run.")
    flags.DEFINE_bool("tiny", False, "Use tiny shapes, to test the program without a GPU.")


def device():
    """Returns the name of the GPU, or of the processor if there is none."""
    command = "nvidia-smi --query-gpu=name --format=csv,noheader"
    names = subprocess.run(command, shell=True, capture_output=True, text=True).stdout.splitlines()
    return names[0] if names else common.processor()


def run_part(part, seconds):
    """Runs a part in a process of its own, and returns its figures, or its error and the end of its output."""
    with tempfile.TemporaryDirectory() as folder:
        results, log = Path(folder, "results"), Path(folder, "log")
        environment = {**os.environ, "KERAS_BACKEND": FLAGS.backend, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
        if part.exact:
            environment["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
        if part.program == "pytest":  # XLA would try several kernels for every product of every test
            environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"
        error = execute(command_of(part, results), log, seconds, environment)
        if results.exists():  # also if tests failed
            return figures_of(part, results)
        output = log.read_text(errors="replace")
        return {"error": error or common.last_line(output), "log": output[-3_000:]}


def command_of(part, results):
    """Returns the command line of a part, which writes `results`."""
    arguments = part.tiny if FLAGS.tiny else part.arguments
    if part.program == "pytest":  # versions of other machines may warn
        options = ["-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "--tb=short"]
        return [sys.executable, "-m", "pytest", *options, f"--junitxml={results}", *arguments]
    program = f"scripts.benchmarks.{part.program}"
    return [sys.executable, "-m", program, f"--backend={FLAGS.backend}", f"--results={results}", *arguments]


def execute(command, log, seconds, environment):
    """Runs a command, writes its output to a file, and returns an error if it took too long."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=common.ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)  # Python writes where it was
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
            return f"took longer than {seconds:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
                process.wait()


def figures_of(part, results):
    """Returns the contents of a result file without the machine, which is the same for all parts."""
    if part.program != "pytest":
        figures = json.loads(results.read_text(encoding="utf-8"))
        return {name: value for name, value in figures.items() if name != "machine"}
    (suite,) = ElementTree.parse(results).getroot()
    count = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    found = [(case, problem) for case in suite for problem in case if problem.tag in ("failure", "error")]
    messages = {f"{case.get('classname')}::{case.get('name')}": one.get("message", "")[:300] for case, one in found}
    passed = count["tests"] - failed - count["skipped"]
    return {"passed": passed, "failed": failed, "skipped": count["skipped"], "failed_tests": messages}


def main():
    start, name = time.perf_counter(), device()
    path = Path(FLAGS.folder) / f"{re.sub('[^a-z0-9]+', '_', name.lower()).strip('_')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    parts = results.setdefault("backends", {}).setdefault(FLAGS.backend, {})
    results |= {"machine": common.machine(name), "tiny": FLAGS.tiny}
    for part_name in FLAGS.parts:
        part, begin = PARTS[part_name], time.perf_counter()
        left = FLAGS.seconds - (begin - start)
        limit = min(part.seconds[FLAGS.backend == "jax"], left)
        figures = run_part(part, limit) if left > 0 else {"error": "the time was up"}
        parts[part_name] = {**figures, "wall_seconds": round(time.perf_counter() - begin, 1)}
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"{FLAGS.backend}, {part_name}: {figures.get('error', 'done')} ({parts[part_name]['wall_seconds']} s)")
        print(figures.get("log", ""), end="", flush=True)
    print(f"Written to {path}", flush=True)


if __name__ == "__main__":
    command_line.run(main, define_flags)
