import json
import math

import keras
import numpy as np
import pytest

from keras_adaptive.callbacks import SGDR, Throughput, TrainLog
from tests.support.refusals import refused

pytestmark = pytest.mark.once


KEYS = "update loss perplexity learning_rate gradient_norm tokens_per_second skipped tokens seconds".split()


class Tracked(keras.Model):
    """A model whose loss is the mean of its inputs, so that the batch decides what is logged."""

    def __init__(self):
        super().__init__()
        self.weight = self.add_weight(shape=(), initializer="zeros")
        self.loss_tracker = keras.metrics.Mean(name="tracked")

    def call(self, inputs):
        return inputs + 0.0 * self.weight

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.loss_tracker.update_state(keras.ops.mean(y_pred), sample_weight=keras.ops.sum(sample_weight))
        return keras.ops.mean(y_pred)


class Norm(keras.callbacks.Callback):
    """Stands in for the model's own gradient norm."""

    def on_train_batch_end(self, batch, logs=None):
        logs["gradient_norm"] = math.inf if batch == 0 else 0.5


def fit(path, losses, weights, every, epochs=1, validation=None, callbacks=()):
    model = Tracked()
    model.compile("sgd")
    losses, weights = np.float32(losses)[:, None], np.float32(weights)
    if validation is not None:
        validation = (np.float32(validation)[:, None], np.zeros(len(validation)), np.ones(len(validation)))
    how = {"sample_weight": weights, "batch_size": 1, "shuffle": False, "epochs": epochs, "verbose": 0}
    callbacks = [*callbacks, TrainLog(path, every=every)]
    model.fit(losses, np.zeros(len(losses)), **how, validation_data=validation, callbacks=callbacks)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def begun(log):
    log.set_model(Tracked())
    log.model.compile("sgd")
    log.on_train_begin()
    return log


@pytest.mark.each_backend
def test_losses_are_those_of_the_interval_weighted_by_tokens(tmp_path):
    records = fit(tmp_path / "run" / "log.jsonl", [1, 2, 3, 4, 5], [1, 3, 2, 2, 7], every=2)
    assert [list(record) for record in records] == [KEYS] * 3
    assert [record["update"] for record in records] == [2, 4, 5]
    assert [record["tokens"] for record in records] == [4, 8, 15]
    assert [record["loss"] for record in records] == pytest.approx([7 / 4, 14 / 4, 5])
    assert [record["perplexity"] for record in records] == pytest.approx([math.exp(7 / 4), math.exp(3.5), math.exp(5)])
    assert 0 <= records[0]["seconds"] <= records[-1]["seconds"]


@pytest.mark.parametrize("validation", [None, [8, 6]])
@pytest.mark.each_backend
def test_intervals_reach_over_epochs_and_validation(tmp_path, validation):
    records = fit(tmp_path / "log", [1, 2, 3], [1, 1, 2], every=2, epochs=2, validation=validation)
    training = [record for record in records if "loss" in record]
    assert [record["update"] for record in training] == [2, 4, 6]
    assert [record["loss"] for record in training] == pytest.approx([1.5, 7 / 3, 8 / 3])
    assert [record["tokens"] for record in training] == [2, 5, 8]
    if validation:
        epochs = [record for record in records if "val_loss" in record]
        assert [record["update"] for record in epochs] == [3, 6]
        assert [record["tokens"] for record in epochs] == [4, 8]
        assert epochs[0]["val_loss"] == 7
        assert epochs[0]["val_perplexity"] == pytest.approx(math.exp(7))


def test_values_of_other_callbacks_are_taken_and_what_is_not_finite_is_null(tmp_path):
    callbacks = [SGDR(lambda update: 0.5 / (update + 1)), Norm(), Throughput(10)]
    records = fit(tmp_path / "log", [1, np.nan, 1000], [1, 1, 1], every=1, callbacks=callbacks)
    assert [record["learning_rate"] for record in records] == [0.5, 0.25, 0.5 / 3]
    assert [record["gradient_norm"] for record in records] == [None, 0.5, 0.5]
    assert [record["loss"] for record in records] == [1, None, None]
    assert records[1]["tokens_per_second"] is None
    assert records[2]["tokens_per_second"] > 0


def test_a_loss_too_large_for_a_perplexity_is_still_a_loss(tmp_path):
    (record,) = fit(tmp_path / "log", [1000], [1], every=1)
    assert record["loss"] == 1000
    assert record["perplexity"] is None


def test_lines_are_there_while_training_goes_on_and_a_file_is_continued(tmp_path):
    path, seen = tmp_path / "log", []
    lines = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: seen.append(len(path.read_text(encoding="utf-8").splitlines()))
    )
    fit(path, [1, 2, 3], [1, 1, 1], every=1, callbacks=[TrainLog(tmp_path / "other"), lines])
    assert seen == [0, 1, 2]
    assert len(fit(path, [1, 2], [1, 1], every=1)) == 5


@pytest.mark.parametrize("rest", [b'{"update": 2, "lo', b"\0" * 40, b'{"update": 2}', b"\n\0\0\n", b"[]\n"], ids=repr)
@pytest.mark.parametrize("known", [False, True])
def test_what_a_power_loss_leaves_is_cut_off(tmp_path, rest, known):
    """Half a line or zeros, whether the checkpoint knows of it or not."""
    path = tmp_path / "log"
    fit(path, [1, 2], [1, 1], every=1)
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    log = TrainLog(path, every=1)
    if known:
        state = {"interval": [0, 0, 0], "seen": [0, 0, 0], "updates": 2, "tokens": 2, "seconds": 1.0, "logs": {}}
        log.set_state({**state, "in_epoch": False, "length": len(whole) + len(rest) + 7})
    begun(log)
    assert path.read_bytes() == whole
    assert [record["update"] for record in fit(path, [1], [1], every=1)] == [1, 2, 1]


def test_tensorboard_gets_the_same_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = TrainLog(tmp_path / "other", every=2, tensorboard_dir=tmp_path / "tensorboard")
    records = fit(tmp_path / "log", [1, 2, 3, 5], [1, 1, 1, 1], every=2, validation=[8, 6], callbacks=[log])
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    for name in ("loss", "perplexity", "val_loss", "val_perplexity"):
        written = [(event.step, event.tensor_proto.float_val[0]) for event in events.Tensors(name)]
        assert written == [(r["update"], pytest.approx(r[name])) for r in records if name in r]
    assert "gradient_norm" not in events.Tags()["tensors"]


def test_a_full_disk_is_named(tmp_path):
    log = begun(TrainLog("/dev/full", every=1))
    refused(log.on_train_batch_end, 0, {}, error=OSError, match="No space left on device: '/dev/full'")


def test_evaluating_outside_fit_writes_nothing(tmp_path):
    model, path = Tracked(), tmp_path / "log"
    model.compile("sgd")
    ones = np.ones((2, 1))
    model.evaluate(ones, ones, sample_weight=np.ones(2), verbose=0, callbacks=[TrainLog(path)])
    assert not path.exists()


def test_a_model_without_a_tracker_is_refused(tmp_path):
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    how = {"verbose": 0, "callbacks": [TrainLog(tmp_path / "log")]}
    refused(model.fit, np.zeros((1, 1)), np.zeros((1, 1)), **how, match="Received: a model of class Sequential")
