"""Peers in a process of their own: where TensorFlow trains, too, a step of PyTorch takes about 1.4 times as long."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from trainers.support import command_line


def in_own_process(make, *arguments, keep_freed_memory=False):
    """Returns what `make(*arguments)` returns in a new process: a function, which runs there, and facts.

    By default the process frees its memory as every Python program does, and with `keep_freed_memory` as the programs
    of this package do.
    """
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    facts = pool.submit(_prepare, make, arguments, keep_freed_memory).result()
    return lambda: pool.submit(_call).result(), facts


def _prepare(make, arguments, keep_freed_memory):
    os.environ["KERAS_BACKEND"] = "torch"  # for what a peer imports of this package
    if keep_freed_memory:
        command_line.keep_freed_memory()
    _call.function, facts = make(*arguments)
    return facts


def _call():
    return _call.function()
