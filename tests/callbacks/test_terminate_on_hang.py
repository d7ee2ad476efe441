import os
import threading

import keras
import numpy as np
import pytest

from keras_adaptive.callbacks import TerminateOnHang


@pytest.fixture
def ended(monkeypatch):
    """Set, with the status, in place of the end of the process."""
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
    pause = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ended.wait(0.2))
    alive = TerminateOnHang(0.5)
    fit(alive, pause)
    assert not ended.wait(0.7)
    fit(TerminateOnHang(float("inf")))
    assert threading.active_count() < 20


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_that_is_none_is_refused(seconds):
    with pytest.raises(ValueError, match="`seconds` must be positive. Received: seconds="):
        TerminateOnHang(seconds)
