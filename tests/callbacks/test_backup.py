"""A training that stops loses no more than the updates after its last checkpoint."""

import io
import itertools
import json
import os
import resource
import shutil
import threading
import warnings

import keras
import numpy as np
import pytest

from keras_adaptive.callbacks import SGDR, Backup, SaveModels, TerminateOnNonFinite, TrainLog, backup
from keras_adaptive.optimizers import NAG
from tests.support.backends import BACKEND
from tests.support.refusals import refused
from tests.support.tiny import batch, language_model

pytestmark = pytest.mark.once


STEPS, EPOCHS = 4, 2  # 8 updates


class Killed(BaseException):
    """No handler of errors sees it, as none sees `kill -9`."""


class Kill(keras.callbacks.Callback):
    def __init__(self, behind):
        super().__init__()
        self.left = behind

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise Killed


def state_of(model):
    """Returns every number that training changes."""
    groups = backup.variables(model)
    return [np.array(keras.ops.convert_to_numpy(one.value)) for name in groups for one in groups[name]]


def assert_same(states, others):
    for one, other in zip(states, others, strict=True):
        np.testing.assert_array_equal(one, other)


def float32():
    return language_model(dropout=0.3), NAG(0.5, momentum=0.9, global_clipnorm=0.1)


def float16():
    """Loses the first updates to overflows, until the loss scale has come down."""
    return language_model(dtype="mixed_float16", dropout=0.3), keras.optimizers.LossScaleOptimizer(
        NAG(0.5, momentum=0.9, global_clipnorm=0.1), initial_scale=2.0**28
    )


@pytest.fixture(params=[float32, float16])
def fresh(request):
    """A function that sets a model to its start and returns it; it is always the same one, to compile once."""
    model, optimizer = request.param()
    model.compile(optimizer, micro_batches=2 if request.param is float32 else 1)
    optimizer.build(model.trainable_variables)
    start = state_of(model)

    def reset():
        groups = backup.variables(model)
        backup.assign([one for name in groups for one in groups[name]], start)
        return model

    return reset


def train(folder, model, kill=None):
    """Trains a tiny model as `trainers.train` does; returns its numbers, the `Backup` and the log without times."""
    log = TrainLog(folder / "log", every=3)
    kept = Backup(folder / "checkpoints", every=3, stateful=[log, TerminateOnNonFinite(), SaveModels(folder)])
    kept.restore(model)

    def fit(steps, epochs):
        data = (batch(4, seed) for seed in itertools.count(kept.update))
        callbacks = [SGDR(lambda update: 0.5 / (1 + update)), *kept.stateful, kept, *([Kill(kill)] if kill else [])]
        lengths = {"steps_per_epoch": steps, "initial_epoch": kept.epoch, "epochs": epochs, "shuffle": False}
        model.fit(data, **lengths, validation_data=batch(2, 99), callbacks=callbacks, verbose=0)

    try:
        if kept.step:
            fit(STEPS - kept.step, kept.epoch + 1)
        fit(STEPS, EPOCHS)
    except Killed:
        kept.wait()
    records = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return state_of(model), kept, [{name: one[name] for name in one if name != "seconds"} for one in records]


@pytest.mark.each_backend
def test_killed_training_goes_on_bit_for_bit(tmp_path, fresh):
    """Dropout, killed after a checkpoint within an epoch: weights, optimizer, seeds, metrics and log. In float32 also
    with two micro-batches and killed after a checkpoint at the end of an epoch."""
    whole, _, log = train(tmp_path / "whole", fresh())
    assert [one["update"] for one in log] == [3, 4, 6, 8, 8]  # the fourth is a validation, the last the rest
    scaled = isinstance(fresh().optimizer, keras.optimizers.LossScaleOptimizer)
    assert (sum(one.get("skipped", 0) for one in log) > 0) == scaled
    for kill in (4,) if scaled else (4, 5):
        train(tmp_path / f"killed_{kill}", fresh(), kill)
        resumed, kept, resumed_log = train(tmp_path / f"killed_{kill}", fresh())
        assert (kept.update, kept.epoch, kept.step) == (8, 2, 0)
        assert_same(whole, resumed)
        assert resumed_log == log


def one_weight(value=0.0, dtype="float32"):
    """A compiled model whose only weight has this value."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, dtype=dtype)])
    model.compile(keras.optimizers.SGD(1.0, momentum=0.5), loss="mse")
    model.set_weights([np.full((1, 1), value)])
    return model


def prepared(kept, model):
    """Gives the backup a model with the variables of its optimizer; returns the backup."""
    kept.set_model(model)
    model.optimizer.build(model.trainable_variables)
    return kept


def save(folder, update, model=None, **kwargs):
    """A checkpoint of a model whose weight is the number of the update."""
    kept = prepared(Backup(folder, **kwargs), model or one_weight())
    kept.restore(kept.model)
    kept.model.set_weights([np.full((1, 1), update)])
    kept.update = update
    kept.on_train_begin()
    kept.save()
    kept.wait()


def restored(folder, model=None):
    model = model or one_weight()
    model.set_weights([np.full((1, 1), -1)])
    path = Backup(folder).restore(model)
    return path and float(model.get_weights()[0][0, 0])


def test_the_newest_are_kept(tmp_path):
    assert restored(tmp_path) is None
    for update in (1, 9, 10, 100):
        save(tmp_path, update, keep=2)
        assert restored(tmp_path) == update
    assert sorted(os.listdir(tmp_path)) == ["update_0000000010.npz", "update_0000000100.npz"]


def test_a_kill_at_any_step_of_a_checkpoint_costs_only_that(tmp_path, monkeypatch):
    """Ends a save at its first step, at its second and so on: each write of a file and each call of the system."""
    steps, limit = [0, 0], itertools.count(1)

    def step():
        steps[0] += 1
        if steps[0] == steps[1]:
            raise Killed

    class File(io.FileIO):
        def write(self, data):
            step()
            return super().write(data)

    def before(function):
        return lambda *args: (step(), function(*args))[1]

    for name in ("fsync", "replace", "remove", "open", "close"):
        monkeypatch.setattr(os, name, before(getattr(os, name)))
    monkeypatch.setattr(backup, "open", lambda path, mode: File(path, mode), raising=False)
    found, model = [], one_weight()
    for update in (1, 2):
        save(tmp_path / "before", update, model)
    for number in limit:
        folder = shutil.copytree(tmp_path / "before", tmp_path / str(number))
        steps[:] = [0, number]
        try:
            save(folder, 3, model, keep=2)
        except Killed:
            steps[:] = [0, 0]
            found.append(restored(folder, model))
        else:
            break
    assert found == sorted(found) and set(found) == {2, 3} and found.index(3) > 20
    steps[:] = [0, 0]
    save(tmp_path / "1", 4, model)
    assert not [name for name in os.listdir(tmp_path / "1") if name.startswith("partial")]


def test_several_updates_per_execution_are_counted(tmp_path, monkeypatch):
    """Keras then calls the callback after the last update of each execution: here 2, 4, 6 and 7 of 7."""
    kept, saved = Backup(tmp_path, every=3), []
    monkeypatch.setattr(kept, "save", lambda: saved.append((kept.update, kept.step)))
    kept.set_params({"steps": 7})
    kept.on_epoch_begin(0)
    for last in (1, 3, 5, 6):
        kept.on_train_batch_end(last)
    assert saved == [(4, 4), (6, 6)]  # the first call at or after 3 and 6; the end of the epoch saves the seventh
    kept.on_epoch_end(0)
    assert saved[-1] == (7, 0) and kept.epoch == 1


def test_damage_anywhere_is_noticed(tmp_path):
    """A flipped bit of the newest checkpoint leads to the one before, or to a place in the file that says nothing."""
    save(tmp_path, 1)
    save(tmp_path, 2)
    newest = tmp_path / "update_0000000002.npz"
    content = newest.read_bytes()
    lost, places, model = 0, range(0, len(content), 9), one_weight()
    for place in places:
        newest.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = restored(tmp_path, model)
        reported = [str(one.message) for one in caught if "is damaged and is skipped" in str(one.message)]
        assert value == (1 if reported else 2)
        lost += bool(reported)
    assert lost > 0.6 * len(places)


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_truncated_checkpoint_is_reported_and_the_one_before_is_used(tmp_path, share):
    for update in (1, 2):
        save(tmp_path, update)
    newest = tmp_path / "update_0000000002.npz"
    newest.write_bytes(newest.read_bytes()[: int(share * newest.stat().st_size)])
    with pytest.warns(UserWarning, match="update_0000000002.npz is damaged and is skipped"):
        assert restored(tmp_path) == 1
    with pytest.warns(UserWarning, match="is damaged"):
        save(tmp_path, 1)
    assert restored(tmp_path) == 1  # the damaged one is gone
    (tmp_path / "update_0000000001.npz").write_bytes(b"")
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="No checkpoint in .* is complete"):
        restored(tmp_path)


def test_a_full_disk_is_told_of_and_damages_nothing(tmp_path):
    save(tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # the system writes no more than that to a file
    try:
        with pytest.raises(OSError, match="checkpoint of update 2 could not be written .* Earlier checkpoints stay"):
            save(tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["update_0000000001.npz"] and restored(tmp_path) == 1


@pytest.mark.each_backend
def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    write, go_on = backup.write, threading.Event()
    monkeypatch.setattr(backup, "write", lambda *args: (go_on.wait(60), write(*args)))
    kept = prepared(Backup(tmp_path), one_weight(1))
    kept.on_train_begin()
    kept.save()
    kept.model.set_weights([np.full((1, 1), 2.0)])
    assert not os.listdir(tmp_path)
    go_on.set()
    kept.wait()
    assert restored(tmp_path) == 1


def test_an_error_of_writing_ends_training(tmp_path, monkeypatch):
    def fail(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(backup, "write", fail)
    zeros = np.zeros((4, 1))
    with pytest.raises(OSError, match="Permission denied"):
        one_weight().fit(zeros, zeros, batch_size=1, verbose=0, callbacks=[Backup(tmp_path, every=1)])


def test_weights_that_are_not_finite_are_not_kept(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(FloatingPointError, match="not finite after update 2"):
        kept = prepared(Backup(tmp_path), one_weight(np.inf))
        kept.update = 2
        kept.save()
        kept.wait()
    assert restored(tmp_path) == 1


def test_checkpoints_of_another_training_are_not_mixed_in(tmp_path):
    save(tmp_path, 1)
    zeros = np.zeros((4, 1))
    fit = {"verbose": 0, "callbacks": [Backup(tmp_path)]}
    refused(one_weight().fit, zeros, zeros, **fit, match="holds checkpoints: resume with")
    wide = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    wide.compile(keras.optimizers.SGD(1.0, momentum=0.5))
    message = "2 numbers in 1 arrays of the model.* where the checkpoint has 1 numbers in 1 arrays of the model"
    refused(Backup(tmp_path).restore, wide, match=message)


def test_a_metric_that_a_checkpoint_lacks_starts_from_zero(tmp_path):
    """The model had fewer metrics when the checkpoint was written."""
    save(tmp_path, 1)
    path = tmp_path / "update_0000000001.npz"
    state, arrays = backup.read(path)
    arrays["metrics"].pop()
    backup.write(path, state, arrays)
    model = one_weight()
    model.metrics[0].update_state(3.0)
    assert restored(tmp_path, model) == 1
    assert float(keras.ops.convert_to_numpy(model.metrics[0].count)) == 0


@pytest.mark.each_backend
def test_any_model_and_its_metrics_go_on(tmp_path):
    """Weights in bfloat16, a plain dropout with a seed, and metrics that Keras makes when `fit` begins."""
    x = np.random.default_rng(1).normal(size=(8, 3)).astype("float32")

    def train(folder, kill=None):
        layers = [keras.layers.Dense(4, dtype="bfloat16"), keras.layers.Dropout(0.5, seed=3), keras.layers.Dense(1)]
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), *layers])
        model.compile(keras.optimizers.Adam(0.1), loss="mse", metrics=["mae"], run_eagerly=BACKEND == "tensorflow")
        kept = Backup(folder, every=3)
        kept.restore(model)
        try:
            how = {"callbacks": [kept, *([Kill(kill)] if kill else [])], "shuffle": False, "verbose": 0}
            history = model.fit(x[kept.update :], x[kept.update :, :1], batch_size=1, **how).history
        except Killed:
            return kept.wait()
        return state_of(model), history

    states, history = train(tmp_path / "whole")
    train(tmp_path / "killed", kill=5)
    resumed, its_history = train(tmp_path / "killed")
    metrics = 4 if BACKEND == "tensorflow" else 0  # which makes them too late
    assert_same(states[: len(states) - metrics], resumed[: len(resumed) - metrics])
    if not metrics:
        assert its_history == history
