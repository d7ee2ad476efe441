"""Runs functions of `keras_adaptive.data` in processes that import NumPy but not Keras.

A process of `multiprocessing` would import the whole package, which takes seconds and hundreds of megabytes per
process. A fork of a process with threads, which backends of Keras start, may hang.
"""

import json
import subprocess
import sys
from pathlib import Path

_FAILURES = {65: ValueError, 74: OSError}  # exit codes of sysexits.h
_PROGRAM = """
import importlib, json, sys, types
folder, module, function, arguments = sys.argv[1:]
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
    way, for example because it is killed for lack of memory.
    """
    names = function.__module__, function.__name__
    command = [sys.executable, "-P", "-c", _PROGRAM, str(Path(__file__).parents[2]), *names, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode in _FAILURES:
        raise _FAILURES[done.returncode](done.stderr.rstrip("\n"))
    if done.returncode:
        raise ChildProcessError(
            f"A process for {function.__name__} ended with status {done.returncode}. Run the same again, which "
            f"resumes, with fewer processes if memory was short. {done.stderr}".rstrip()
        )
