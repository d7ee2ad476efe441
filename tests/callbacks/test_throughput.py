import types

import keras
import numpy as np
import pytest

from keras_adaptive.callbacks import Throughput, throughput

pytestmark = pytest.mark.once


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when told to."""
    clock = types.SimpleNamespace(now=100.0)
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: clock.now)
    return clock


def begun(tokens):
    callback = Throughput(tokens)
    callback.on_train_begin()
    return callback


def speeds(callback, clock, updates, seconds, epoch=0, loading=0.0):
    """Returns the logs of updates that take these numbers of seconds, and their data's loading on top."""
    logged = []
    callback.on_epoch_begin(epoch)
    for batch in range(updates):
        clock.now += loading * (batch > 0)
        callback.on_train_batch_begin(batch)
        clock.now += seconds
        logs = {}
        callback.on_train_batch_end(batch, logs)
        logged.append(logs.get("tokens_per_second"))
    return logged


def test_compiling_updates_are_left_out(clock):
    callback = begun(60)
    assert speeds(callback, clock, 2, seconds=30.0) == [None, None]
    assert speeds(callback, clock, 2, seconds=0.5, epoch=1) == [120.0, 120.0]


def test_time_between_epochs_is_left_out_and_loading_is_not(clock):
    callback = begun(60)
    speeds(callback, clock, 3, seconds=0.5)
    clock.now += 1000.0  # validation
    assert speeds(callback, clock, 2, seconds=0.5, epoch=1) == [120.0, 120.0]
    logs = {}
    callback.on_epoch_end(1, logs)
    assert logs == {"tokens_per_second": 120.0}
    callback.on_train_begin()
    assert speeds(callback, clock, 4, seconds=0.5, loading=0.5)[-1] == 60.0


def test_only_the_last_updates_count(clock):
    callback = begun(60)
    speeds(callback, clock, 50, seconds=10.0)
    assert speeds(callback, clock, throughput.WINDOW, seconds=0.5, epoch=1)[-1] == 120.0


def test_tokens_may_vary_from_update_to_update(clock):
    tokens = iter([10, 30])
    callback = begun(lambda: next(tokens))
    assert speeds(callback, clock, 4, seconds=1.0) == [None, None, 10.0, 20.0]


def test_an_execution_of_several_steps_counts_them_all(clock):
    callback = begun(10)
    callback.on_epoch_begin(0)
    for last in (4, 9):
        callback.on_train_batch_begin(last - 4)
        clock.now += 1.0
        callback.on_train_batch_end(last, logs := {})
    assert logs == {"tokens_per_second": 50.0}


def test_the_rest_of_training_is_estimated_with_its_validations(clock):
    left = iter(range(19, 0, -1))
    callback = Throughput(60, lambda: next(left))
    callback.set_params({"steps": 4})
    callback.on_train_begin()
    speeds(callback, clock, 4, seconds=36.0)
    callback.on_test_begin()
    clock.now += 144.0
    callback.on_test_end()
    logs = {}
    callback.on_epoch_end(0, logs)
    assert logs["hours_left"] == pytest.approx(17 * (36 + 144 / 4) / 3600)


def test_the_progress_bar_and_the_history_show_it(capsys):
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    zeros = np.zeros((5, 1))
    history = model.fit(zeros, zeros, batch_size=1, callbacks=[Throughput(60)])
    assert "tokens_per_second: " in capsys.readouterr().out
    assert history.history["tokens_per_second"][0] > 0
