import os
import signal
import sys

import keras
import numpy as np
import pytest

from keras_adaptive.callbacks import Backup, StopOnSignal

pytestmark = pytest.mark.once


class Send(keras.callbacks.Callback):
    """Sends this process a signal in the midst of an update, or of validation."""

    def __init__(self, number, event="on_train_batch_begin", batch=2):
        super().__init__()
        setattr(self, event, lambda at, logs=None: os.kill(os.getpid(), number) if at == batch else None)


def fit(folder, *callbacks):
    """Runs an epoch of 4 updates and a validation of 4 batches; returns the backup."""
    ones, backup = np.ones((4, 1)), Backup(folder)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse", run_eagerly=keras.config.backend() == "tensorflow")
    with StopOnSignal(backup) as stop:
        data = {"validation_data": (ones, ones), "validation_batch_size": 1}
        model.fit(ones, ones, batch_size=1, **data, verbose=0, callbacks=[*callbacks, backup, stop])
    return backup


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.each_backend
def test_the_update_ends_and_is_saved_before_the_process_stops(tmp_path, capsys, number, code):
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as stopped:
        fit(tmp_path, Send(number))
    assert stopped.value.code == code
    assert os.listdir(tmp_path) == ["update_0000000003.npz"]
    assert f"{number.name}: stopped after update 3" in capsys.readouterr().err
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("terminal", [True, False])
def test_the_message_does_not_continue_a_progress_bar(tmp_path, capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    with pytest.raises(SystemExit):
        fit(tmp_path, Send(signal.SIGINT))
    assert capsys.readouterr().err.startswith("\nSIGINT: " if terminal else "SIGINT: ")


def test_validation_is_left_at_once(tmp_path):
    batches = []
    count = keras.callbacks.LambdaCallback()
    count.on_test_batch_end = lambda batch, logs=None: batches.append(batch)
    with pytest.raises(SystemExit):
        fit(tmp_path, count, Send(signal.SIGTERM, "on_test_batch_begin", 1))
    assert batches == [0, 1]
    assert os.listdir(tmp_path) == ["update_0000000004.npz"]


def test_the_same_signal_again_is_not_held_up(tmp_path):
    seen = []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append([signal.getsignal(one) for one in (2, 15)])
    )
    with pytest.raises(SystemExit):
        fit(tmp_path, Send(signal.SIGTERM, batch=1), look)
    assert seen[1] == [seen[0][0], signal.SIG_DFL] != seen[0]


def test_two_signals_at_the_same_instant_stop_in_order(tmp_path, capsys):
    """Python calls a handler for each of them, the second one after the first has changed the handlers."""

    class SendBoth(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 1:
                both = signal.SIGINT, signal.SIGTERM
                signal.pthread_sigmask(signal.SIG_BLOCK, both)
                for number in both:
                    os.kill(os.getpid(), number)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, both)

    with pytest.raises(SystemExit) as stopped:
        fit(tmp_path, SendBoth())
    assert stopped.value.code in (130, 143)
    printed = capsys.readouterr().err
    assert "stopped after update 2" in printed and len(printed.splitlines()) == 1
    assert os.listdir(tmp_path) == ["update_0000000002.npz"]


def test_without_a_signal_nothing_changes(tmp_path):
    before = [signal.getsignal(one) for one in (2, 15)]
    assert fit(tmp_path).epoch == 1
    assert [signal.getsignal(one) for one in (2, 15)] == before
