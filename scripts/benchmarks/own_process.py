"""Peers in a process of their own, where they are as fast as their users know them.

In a process that has imported TensorFlow, a training step of PyTorch takes 1.1 times as long, and 1.5 times as long
once TensorFlow has trained there.
"""

import contextlib
import multiprocessing
import os


def in_own_process(make, *arguments):
    """Calls `make(*arguments)`, which returns a function and facts, in a new process.

    Returns:
        A function that calls that function in the process and returns its result, and the facts.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    context.Process(target=_answer, args=(there, make, arguments), daemon=True).start()
    there.close()  # so that an error over there ends the waiting here

    def call():
        here.send(None)
        return here.recv()

    return call, here.recv()


def _answer(pipe, make, arguments):
    os.environ["KERAS_BACKEND"] = "torch"  # for what a peer imports of this package
    function, facts = make(*arguments)
    pipe.send(facts)
    with contextlib.suppress(EOFError):  # the benchmark is over
        while not pipe.recv():
            pipe.send(function())
