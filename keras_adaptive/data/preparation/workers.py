"""Runs functions of `keras_adaptive.data` in processes that import NumPy but not Keras.

A process of `multiprocessing` would import the whole package, which takes seconds and hundreds of megabytes per
process. A fork of a process with threads, which backends of Keras start, may hang. Such a process is started by a
thread of this process, or by a worker of any other executor, which may be on another machine.
"""

import concurrent.futures
import functools
import json
import os
import platform
import subprocess
import sys
import unicodedata
import zlib
from pathlib import Path

_FAILURES = {65: ValueError, 74: OSError}  # exit codes of sysexits.h
_PROGRAM = """
import importlib, json, os, sys, threading, types
folder, module, function, arguments = sys.argv[1:]
def end_with_caller():
    os.read(0, 1)  # nothing is ever written, so that it returns when the caller has ended
    os._exit(1)
threading.Thread(target=end_with_caller, daemon=True).start()
sys.modules["keras_adaptive"] = types.ModuleType("keras_adaptive")  # in place of its __init__.py, which imports Keras
sys.modules["keras_adaptive"].__path__ = [folder]
try:
    getattr(importlib.import_module(module), function)(*json.loads(arguments))
except (ValueError, OSError) as error:
    print(error, file=sys.stderr)
    sys.exit(65 if isinstance(error, ValueError) else 74)
"""


def call(function, *arguments):
    """Runs a function of a module of `keras_adaptive.data`, with arguments that JSON can hold, in a new process.

    A ValueError or an OSError of the function is raised here too; a ChildProcessError if the process fails in another
    way, for example because it is killed for lack of memory. The new process ends when this one is killed.
    """
    names = function.__module__, function.__name__
    command = [sys.executable, "-P", "-c", _PROGRAM, str(Path(__file__).parents[2]), *names, json.dumps(arguments)]
    reader, writer = os.pipe()
    try:
        done = subprocess.run(command, stdin=reader, capture_output=True, text=True)
    finally:
        os.close(reader)
        os.close(writer)
    if done.returncode in _FAILURES:
        raise _FAILURES[done.returncode](done.stderr.rstrip("\n"))
    if done.returncode:
        raise ChildProcessError(
            f"A process for {function.__name__} ended with status {done.returncode}. Run the same again, which "
            f"resumes, with fewer processes if memory was short. {done.stderr}".rstrip()
        )


def call_here(function, calls):
    """Calls a function with each list of arguments in this process, and yields None after each call."""
    for arguments in calls:
        yield function(*arguments)


def call_in(executor, function, calls):
    """Runs `call` with each list of arguments in a worker of an executor, and yields None for each call, in order.

    An error of the function is raised here. A ChildProcessError is raised if the executor fails, or if a worker has
    another version of the package. Calls that have not begun are then canceled, and the others awaited.
    """
    futures = []
    try:
        for arguments in calls:
            futures.append(_ask(executor.submit, _attempt, _version(), function, arguments))
        for future in futures:
            if error := _ask(future.result):
                raise error
            yield
    finally:
        for future in futures:
            future.cancel()
        concurrent.futures.wait(futures)


def _ask(method, *arguments):
    """Calls a method of an executor or a future, whose own errors become a ChildProcessError."""
    try:
        return method(*arguments)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise ChildProcessError(
            f"The executor failed ({type(error).__name__}: {text}). Start it again if it has ended, with this version "
            "of keras_adaptive for all workers, and run the same again, which resumes."
        ) from error


def _attempt(version, function, arguments):
    """Runs `call` in a worker, and returns its error, which is None on success."""
    if version != _version():
        return ChildProcessError(
            f"All workers must have the same keras_adaptive and Python as this process: {version}. Received: "
            f"{_version()} on {platform.node()}. Install the same there, and run the same again, which resumes."
        )
    try:
        return call(function, *arguments)
    except (ValueError, OSError) as error:
        return error


@functools.cache
def _version():
    """Returns an identifier of everything that decides the words of a text: this code, and Unicode's classes."""
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    checksum = zlib.crc32("".join(path.read_text(encoding="utf-8") for path in sources).encode())
    return f"code {checksum:08x}, Unicode {unicodedata.unidata_version}"
