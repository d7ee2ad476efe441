"""`python -m` in processes that begin with the package imported, which takes longer than most of what they do.

Each process is a fork of one that has imported the package and has done nothing else: it has one thread, and no backend
has begun to use its devices. It has its own memory, environment variables, output and exit status, and signals end it.
Tests of command lines start Python itself.
"""

import atexit
import contextlib
import functools
import itertools
import multiprocessing
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
PACKAGE = ["keras_adaptive.callbacks", "keras_adaptive.distribution", "keras_adaptive.text"]  # and what they import
FORKS.set_forkserver_preload([*PACKAGE, "tensorflow"])  # Keras imports TensorFlow, if it can, to set seeds
COUNT = itertools.count()


@contextlib.contextmanager
def forked():
    """Makes `subprocess` start every `[sys.executable, "-m", module, …]` as such a process."""
    start = subprocess.Popen
    subprocess.Popen = lambda command, **rest: (
        Forked(command, **rest) if command[:2] == [sys.executable, "-m"] else start(command, **rest)
    )
    try:
        yield
    finally:
        subprocess.Popen = start


class Forked:
    """What the tests and the scripts use of `subprocess.Popen`. Output without a pipe is printed after the end."""

    def __init__(self, command, *, env=None, cwd=None, stdout=None, stderr=None, text=None):
        self.args, self.stdout, self.stderr = command, stdout, stderr
        number = next(COUNT)
        self.files = [Path(_folder(), f"{number}.{name}") for name in ("stdout", "stderr")]
        if stderr == subprocess.STDOUT:
            self.files[1] = self.files[0]
        for file in self.files:
            file.touch()
        place = os.getcwd() if cwd is None else str(cwd)
        self.process = FORKS.Process(target=_main, args=(command[2:], dict(env or os.environ), place, self.files))
        self.process.start()

    @property
    def pid(self):
        return self.process.pid

    @property
    def returncode(self):
        return self.process.exitcode

    def poll(self):
        return self.process.exitcode

    def kill(self):
        self.process.kill()

    def send_signal(self, number):
        os.kill(self.pid, number)

    def communicate(self, input=None, timeout=None):
        self.process.join(timeout)
        if self.process.is_alive():
            raise subprocess.TimeoutExpired(self.args, timeout)
        texts = [file.read_text() for file in self.files]
        if self.stdout is None:
            print(texts[0], end="")
        return texts

    def wait(self, timeout=None):
        self.communicate(timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.join()


@functools.cache
def _folder():
    """The folder of all output, which is removed at the end."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return folder


def _main(command, environment, folder, files):
    """Becomes the process of a command whose output goes to files."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
    sys.argv = command
    try:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # which `multiprocessing` leaves out
