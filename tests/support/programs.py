"""The programs of trainers/ and scripts/, called in this process."""

import base64
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from absl import flags

from trainers.experiments import flagfiles

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def parsed(program, *arguments):
    """Defines and parses the flags of a program, gives the arguments that are no flags, and removes the flags."""
    before = set(flags.FLAGS)
    program.define_flags()
    try:
        yield flags.FLAGS(["program", *flagfiles.expand(map(str, arguments))])[1:]
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


def ask(folder, requests):
    """The responses of a process without Keras to `[(signature, inputs)]`, or to whole requests."""
    requests = [one if isinstance(one, dict) else {"signature_name": one[0], "inputs": one[1]} for one in requests]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KERAS_BACKEND")}
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "rest.py", folder],
        input=json.dumps(requests, default=lambda line: {"b64": base64.b64encode(line).decode()}),
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
