import os
import sys
import threading

import keras
import numpy as np
import pytest

from keras_adaptive.callbacks import TerminateOnHang
from keras_adaptive.callbacks.terminate_on_hang import end_at_once

pytestmark = pytest.mark.once


@pytest.fixture
def ended(monkeypatch):
    """Replaces the end of the process by an event, which holds the status."""
    ended = threading.Event()

    def end(status):
        ended.status = status
        ended.set()
        threading.Event().wait()  # the thread does nothing after it

    monkeypatch.setattr(os, "_exit", end)
    return ended


def fit(alive, *callbacks):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse", run_eagerly=keras.config.backend() == "tensorflow")
    with alive:
        model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=1, verbose=0, callbacks=[*callbacks, alive])


def test_a_process_that_hangs_ends_with_a_status_of_its_own(ended, capfd):
    wait = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: batch != 2 or ended.wait(30))
    fit(TerminateOnHang(0.2), wait)
    assert ended.is_set() and ended.status == 75
    printed = capfd.readouterr().err
    assert "No batch ended for 0.2 seconds: another process hangs" in printed and len(printed.splitlines()) == 1


def test_a_process_that_does_not_hang_ends_as_it_would(ended):
    """The test calls the callback by hand, since a batch of a model that still compiles may take any time."""
    threads = set(threading.enumerate())
    with TerminateOnHang(1.0) as alive:
        (watch,) = set(threading.enumerate()) - threads
        for hook in (alive.on_train_batch_end, alive.on_test_batch_end) * 3:
            assert not ended.wait(0.25)
            hook(0)
    watch.join(10)
    assert not watch.is_alive() and not ended.is_set()
    with TerminateOnHang(float("inf")):
        assert set(threading.enumerate()) <= threads


def test_a_closed_pipe_does_not_keep_the_process(monkeypatch):
    class Closed:
        def write(self, text):
            raise BrokenPipeError

        flush = write

    monkeypatch.setattr(sys, "stderr", Closed())
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        end_at_once("another process hangs")
    assert ended.value.code == 75
