"""The programs of trainers/ and scripts/, called in this process."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from absl import flags

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def parsed(program, *arguments):
    """Defines and parses the flags of a program, gives the arguments that are no flags, and removes the flags."""
    before = set(flags.FLAGS)
    program.define_flags()
    try:
        yield flags.FLAGS(["program", *map(str, arguments)])[1:]
    finally:
        for name in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()


def call(program, *arguments):
    """Runs a program's main with these arguments, as its command line would."""
    with parsed(program, *arguments) as paths:
        program.main(*paths)


def run(*arguments, **environment):
    """Runs Python with these arguments in a process of its own, from the root of the project."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
