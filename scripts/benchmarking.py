"""What the benchmarks share: timing in turns, memory above a baseline, the machine, tables and JSON."""

import ctypes
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from absl import flags

PACKAGES = ("keras", "tensorflow", "tensorflow-cpu", "jax", "jaxlib", "torch", "numpy")
SETTLE = 0.25  # seconds between two turns, in which the threads of the one before go to sleep


def in_turns(candidates, repeats, warmup=2, timed=False):
    """Times functions without arguments, one call each in turn: `{name: [seconds of every call]}`.

    A call must return only when its result is there, and with `timed` it returns a list of the seconds that count.
    The machine's drifts fall on all of them alike, so ratios of medians hold where single times do not.
    """
    seconds = {name: [] for name in candidates}
    for turn in range(warmup + repeats):
        for name, function in candidates.items():
            gc.collect()
            time.sleep(SETTLE)
            start = time.perf_counter()
            result = function()
            measured = result if timed else [time.perf_counter() - start]
            if turn >= warmup:
                seconds[name] += measured
    return seconds


def compiled_step(function, variables, *arguments):
    """`function(*arguments)`, compiled as in training; it returns when its results are there.

    What depends on the data belongs in the arguments: what a compiler knows of it, it computes beforehand.
    """
    import keras

    from keras_adaptive.backend.compiled import compiled

    if keras.config.backend() == "tensorflow":
        run = compiled(function, variables)
        return lambda: run(*arguments)  # which waits by itself
    if keras.config.backend() == "jax":
        import jax

        pure = compiled(function, variables)
        return lambda: jax.block_until_ready(pure(*arguments))
    import torch

    def run():
        result = function(*arguments)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return result

    return run


def spread(values):
    """Median, least and largest of some measurements."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "repeats": len(values)}


def peak_bytes(function):
    """How far the resident memory rises above its level of before while `function` runs, on Linux.

    What `function` returns counts as long as it runs. Call it once before, so that compilers and thread pools have what
    they keep.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to the present level
    before = status("VmRSS")
    result = function()
    peak = status("VmHWM")
    del result
    return peak - before


def status(field, process="self"):
    """Bytes that Linux tells of a process: VmRSS, what is resident in memory, or VmHWM, the most that was."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def machine(device=None):
    """The hardware, the versions and the commit that a result belongs to."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    return {"device": device or processor(), "cores": os.cpu_count(), "versions": versions, "commit": commit}


def processor():
    """The name of the processor where Linux tells it, and what it multiplies in bfloat16 with."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    units = {unit for line in lines if line.startswith("flags") for unit in line.split()} & {"amx_bf16", "avx512_bf16"}
    return ", ".join([names[0] if names else platform.processor(), *sorted(units)])


def save(names, settings=None, **figures):
    """Writes figures as JSON where `--results` says, with the machine and settings: the flags `names` and more."""
    if not flags.FLAGS.results:
        return
    settings = {**(settings or {}), **{name: flags.FLAGS[name].value for name in names}}
    results = {"machine": machine(), "settings": settings, **figures}
    path = Path(flags.FLAGS.results)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"partial_{path.name}")
    partial.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)
    print(f"Written to {path}", flush=True)


def print_table(header, rows):
    """Prints columns as wide as their longest cell, the first to the left and the others to the right."""
    rows = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
        print("  ".join([row[0].ljust(widths[0]), *cells]), flush=True)


def choose_backend(name):
    """Makes Keras use a backend; must come before the first import of Keras in this process."""
    if "keras" in sys.modules:
        raise RuntimeError("The backend is chosen when Keras is imported, and it was.")
    os.environ["KERAS_BACKEND"] = name
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
