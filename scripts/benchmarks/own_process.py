"""Peers in a process of their own: where TensorFlow trains, too, a step of PyTorch takes about 1.4 times as long."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor


def in_own_process(make, *arguments):
    """Returns what `make(*arguments)` returns in a new process: a function, which runs there, and facts."""
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    facts = pool.submit(_prepare, make, arguments).result()
    return lambda: pool.submit(_call).result(), facts


def _prepare(make, arguments):
    os.environ["KERAS_BACKEND"] = "torch"  # for what a peer imports of this package
    _call.function, facts = make(*arguments)
    return facts


def _call():
    return _call.function()
