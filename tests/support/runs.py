"""Folders of runs: what programs write into them and print of them, and whether two trainings ended the same."""

import contextlib
import io
import json
import os
import signal

import keras
import numpy as np
import pytest

from tests.support.programs import call
from trainers import evaluate, score

TIMES = dict.fromkeys(("seconds", "tokens_per_second", "hours_left"))


def records(run_dir):
    """Returns the records of the log."""
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def evaluated(run_dir, *flags, split="valid"):
    """Evaluates a run and returns the result that is written."""
    call(evaluate, f"--run_dir={run_dir}", f"--split={split}", *flags)
    mixed = [flag for flag in evaluate.MIXED if any(given.startswith(f"--{flag}=") for given in flags)]
    return json.loads((run_dir / f"{'_'.join(['evaluation', split, *mixed])}.json").read_text())


def printed_scores(run_dir, text, *flags):
    """Scores a text, a string or bytes, and returns the lines that are printed."""
    source = io.BytesIO(text if isinstance(text, bytes) else text.encode())
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(io.StringIO()) as printed:
        patched.setattr(score, "standard_input", lambda: source)
        call(score, f"--run_dir={run_dir}", *flags)
    return printed.getvalue().splitlines()


def scored(run_dir, text, *flags):
    """Scores a text and returns the records of its lines."""
    return [json.loads(line) for line in printed_scores(run_dir, text, "--format=json", *flags)]


@contextlib.contextmanager
def stopped(event, batch):
    """Tells a training to stop at an event of a batch; it must end with the status of a process that was told so."""
    fit, stop = keras.Model.fit, keras.callbacks.Callback()
    setattr(stop, event, lambda at, logs=None: os.kill(os.getpid(), signal.SIGTERM) if at == batch else None)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(
            keras.Model, "fit", lambda *one, callbacks, **rest: fit(*one, callbacks=[stop, *callbacks], **rest)
        )
        yield
    assert ended.value.code == 143


def assert_same_runs(one, other):
    """Compares the last checkpoints to the last bit, and the logs except for times."""
    newest = [max((run / "checkpoints").glob("update_*.npz")) for run in (one, other)]
    assert newest[0].name == newest[1].name
    with np.load(newest[0]) as first, np.load(newest[1]) as second:
        assert first.files == second.files
        for name in set(first.files) - {"state"}:
            np.testing.assert_array_equal(first[name], second[name])
    logs = [[record | TIMES for record in records(run)] for run in (one, other)]
    assert logs[0] == logs[1]
