"""A `WordModel` with every output, a functional model and a model without logits on several devices, against one."""

import functools
import json
import sys

import numpy as np
import pytest

from keras_adaptive import distribution
from scripts.benchmarks.virtual_devices import environments, run_processes
from tests.support import several_outputs
from tests.support.backends import BACKEND
from tests.support.processes import forked

pytestmark = pytest.mark.processes

# Strategy, processes, devices of each, and forms. A functional model is refused where replicas are processes, each of
# which compiles what it runs.
CASES = {
    "tensorflow": [
        ("mirrored", 1, 2, "functional", "word_model", "task"),
        ("multiworker", 2, 1, "quick_word_model", "task"),
    ],
    "jax": [
        ("data_parallel", 1, 2, "functional", "word_model", "task", "sharded"),
        ("data_parallel", 2, 1, "quick_word_model", "task"),
    ],
    "torch": [("ddp", 2, 1, "word_model", "task")],
}[BACKEND]


@functools.cache
def on_one(form):
    eagerly = BACKEND == "tensorflow"  # the quickest way
    return several_outputs.trained(distribution.start(), several_outputs.FORMS[form], eagerly)


@functools.cache
def on_several(strategy, processes, devices, *forms):
    """Returns what each process of the strategy printed."""
    known = environments(BACKEND, processes) if processes > 1 else [{}]
    command = [sys.executable, "-m", "tests.support.several_outputs", strategy, str(devices), *forms]
    with forked():
        return [json.loads(lines.splitlines()[-1]) for lines in run_processes(known, command)]


@pytest.mark.parametrize("case, form", [(case, form) for case in CASES for form in case[3:]])
def test_several_devices_take_the_step_of_one(case, form):
    """Two updates with weights, one of them with replicas of fewer rows, and an evaluation."""
    expected = on_one(form)
    for found in (process[form] for process in on_several(*case)):
        for weight, exact in zip(found["weights"], expected["weights"], strict=True):
            np.testing.assert_allclose(weight, exact, atol=1e-6, rtol=0)
        for part in ("logs", "evaluated"):
            assert found[part] == pytest.approx(expected[part], rel=1e-5)
