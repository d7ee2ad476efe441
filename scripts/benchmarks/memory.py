"""The peak memory of a function, in this process, on a GPU, or as a benchmark prints it in a process of its own."""

import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS

flags.disclaim_key_flags()  # the flags defined here belong to the benchmark, whose --help shows them


def define_flags():
    """Defines --memory and --memory_of."""
    flags.DEFINE_bool("memory", True, "Also measure memory. It needs Linux.")
    flags.DEFINE_string("memory_of", None, "Print the memory of this candidate, in bytes, and nothing else.")


def of_process(program, candidate, environment=None, **given):
    """Returns the bytes that a benchmark prints for a candidate in a separate process with the flags `given`.

    The process returns freed memory to Linux, as glibc does by default, so that it can measure its memory.
    """
    arguments = [FLAGS[name].serialize() for name in FLAGS if FLAGS[name].present and name != "results"]
    arguments += [f"--{name}={value}" for name, value in given.items()]
    command = [sys.executable, "-m", f"scripts.benchmarks.{program}", *arguments, f"--memory_of={candidate}"]
    environment = {**os.environ, "MALLOC_PERTURB_": "0", **(environment or {})}  # glibc's default: keep_freed_memory
    done = subprocess.run(command, cwd=common.ROOT, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def print_peak(function, excluded=0):
    """Prints the memory of a call of a function, without the excluded bytes, for `of_process`.

    On a CPU it is the median of --repeats peaks. On a GPU it is the peak beyond what the process holds afterwards.
    """
    from keras_adaptive.backend.accelerator import on_accelerator

    for _ in range(2):
        function()
    if on_accelerator() and FLAGS.backend == "jax":
        import jax

        held = jax.local_devices()[0].memory_stats()
        print(held["peak_bytes_in_use"] - held["bytes_in_use"] - excluded)
    elif on_accelerator():
        print(device_peak_bytes(function, FLAGS.backend) - excluded)
    else:
        print(int(np.median([peak_bytes(function) for _ in range(FLAGS.repeats)])) - excluded)


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
        common.wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = function()
        common.wait()
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
