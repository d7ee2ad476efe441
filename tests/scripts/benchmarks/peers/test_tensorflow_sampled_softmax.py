"""TensorFlow's updates of the benchmark, against the formulas."""

import numpy as np
import pytest
import tensorflow as tf

from scripts.benchmarks.peers.tensorflow_sampled_softmax import Trainer
from tests.support import oracle

pytestmark = pytest.mark.once

WORDS, DIM, ROWS, SAMPLES, RATE = 9, 3, 4, 5, 0.2
TARGETS = np.array([2, 0, 8, 2], "int32")


def test_an_update_is_adagrad_on_the_sampled_softmax(monkeypatch):
    random = np.random.default_rng(1)
    table, hidden = (random.normal(size=(size, DIM)).astype("float32") for size in (WORDS, ROWS))
    sampled = np.array([1, 0, 2, 3, 4]), random.random(ROWS).astype("float32"), random.random(5).astype("float32")
    trainer, weights = Trainer(table, SAMPLES, RATE), np.full(ROWS, 1 / ROWS)
    loss = trainer.loss
    values = sampled[0], sampled[1][:, None], sampled[2]
    monkeypatch.setattr(trainer, "loss", lambda *batch: loss(*batch, sampled_values=values))
    found = trainer.update(hidden, TARGETS)

    def total(table, bias, shift):
        return oracle.sampled_cross_entropy(hidden + shift, table, bias, TARGETS, weights, sampled)

    before = [table, np.zeros(WORDS), np.zeros(DIM)]
    np.testing.assert_allclose(found, total(*before), rtol=1e-5)
    after = trainer.table, trainer.bias, trainer.shift
    for old, new, gradient in zip(before, after, oracle.gradients(total, before), strict=True):
        expected = old - RATE * gradient / np.sqrt(1 + gradient**2)
        np.testing.assert_allclose(tf.convert_to_tensor(new), expected, atol=1e-6)
    np.testing.assert_array_equal(after[0][5:8], table[5:8])  # neither targets nor noise
