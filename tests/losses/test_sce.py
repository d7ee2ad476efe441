"""Cross-entropy within buckets, against the definition in float64."""

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveSoftmax, WordEmbedding
from keras_adaptive.layers.regularization.seeds import micro_batch
from keras_adaptive.losses import SCE
from keras_adaptive.models import LanguageModel
from tests.support import oracle
from tests.support.backends import BACKEND, MODES, runner, weight_gradients
from tests.support.closeness import close
from tests.support.refusals import refused
from tests.support.tiny import batch
from tests.support.toy_body import ToyBody
from tests.support.weights import built, value

WORDS, DIM, ROWS = 20, 4, 14
BUCKETS, BUCKET_ROWS, BUCKET_CLASSES = 5, 4, 6
TARGETS = np.array([4, 0, 5, 4, -1, 8, 14, 4, 19, WORDS, 0, 3, 7, 2], "int32")
WEIGHTS = np.array([1, 0.5, 2, 1, 1, 0, 3, 1, 0.25, 1, 2, 1, 1, 1], "float32")  # 8 has no weight
HIDDEN = np.random.default_rng(1).normal(size=(ROWS, DIM)).astype("float32")
ACTIVE = (TARGETS >= 0) & (TARGETS < WORDS) & (WEIGHTS != 0)


def made(dtype="float32", use_bias=True, sizes=(BUCKETS, BUCKET_ROWS, BUCKET_CLASSES)):
    return built(AdaptiveSoftmax(WORDS, (), use_bias=use_bias, loss=SCE(*sizes, seed=5), dtype=dtype), DIM, 3)


def buckets_of(x, table, mixture, sizes=(BUCKETS, BUCKET_ROWS, BUCKET_CLASSES)):
    """The rows and the classes of each bucket."""
    directions = mixture @ np.where(ACTIVE[:, None], x, 0)
    products = np.where(ACTIVE, directions @ x.T, -np.inf)
    rows = np.argsort(-products, axis=1)[:, : sizes[1]]
    return [row[ACTIVE[row]] for row in rows], np.argsort(-directions @ table.T, axis=1)[:, : sizes[2]]


def exact(buckets, x, table, bias):
    losses = {}
    for rows, classes in zip(*buckets, strict=True):
        for row in rows:
            others = classes[classes != TARGETS[row]]
            logits = x[row] @ table[np.append(others, TARGETS[row])].T + bias[np.append(others, TARGETS[row])]
            loss = -oracle.log_softmax(logits)[-1]
            losses[row] = max(losses.get(row, loss), loss, key=np.real)
    mean = sum(WEIGHTS[row] * loss for row, loss in losses.items()) / WEIGHTS[list(losses)].sum()
    return WEIGHTS[ACTIVE].sum() * mean


def mixture_of(shape, mode):
    """The random weights of the first update, which differ under XLA."""
    seed = keras.random.SeedGenerator(5)
    return runner(lambda: keras.random.normal(shape, seed=seed), mode)().astype("float64")


@pytest.mark.parametrize("mode", [MODES[0], *MODES[2:]])  # eager JAX is slow
def test_value_and_gradients(mode):
    layer = made()
    total = lambda hidden: layer.training_loss(hidden, TARGETS, WEIGHTS)  # noqa: E731
    found, gradients = weight_gradients(total, [layer.tables[0], layer.bias], [HIDDEN], mode)
    arrays = [array.astype("float64") for array in (HIDDEN, value(layer.tables[0]), value(layer.bias))]
    buckets = buckets_of(*arrays[:2], mixture_of((BUCKETS, ROWS), mode))
    members = np.concatenate(buckets[0])
    assert 1 < len(set(members)) < min(len(members), ACTIVE.sum())  # some rows are in no bucket, some in two
    whole = lambda *arrays: exact(buckets, *arrays)  # noqa: E731
    np.testing.assert_allclose(found, whole(*arrays), rtol=2e-6)
    of_hidden, *of_weights = oracle.gradients(whole, arrays)
    close(gradients, [*of_weights, of_hidden], 2e-6)


@pytest.mark.parametrize("rows", [ACTIVE.sum(), ROWS + 2])
def test_a_bucket_of_everything_is_the_cross_entropy(rows):
    """Every row that counts is in the bucket."""
    layer = made(use_bias=False, sizes=(1, int(rows), WORDS))
    found, exact = runner(lambda *arrays: [layer.training_loss(*arrays), layer.total_nll(*arrays)])(
        HIDDEN, TARGETS, WEIGHTS
    )
    np.testing.assert_allclose(found, exact, rtol=2e-6)


def test_nothing_to_learn_and_narrow_hidden_states():
    narrow, wide = made("mixed_bfloat16"), made()
    losses = [
        runner(lambda hidden, layer=layer: layer.training_loss(hidden, TARGETS, WEIGHTS))(HIDDEN)
        for layer in (narrow, wide)
    ]
    np.testing.assert_allclose(*losses, rtol=5e-2)
    assert runner(made().training_loss)(HIDDEN, np.full(ROWS, -1, "int32")) == 0


def test_an_optimizer_may_update_the_rows_that_were_read():
    tokens, targets, weights = batch(4)
    layer = AdaptiveSoftmax(WORDS, (), loss=SCE(1, 4, 6))
    model = LanguageModel(WordEmbedding(WORDS, DIM), ToyBody(DIM), layer)
    model.compile(keras.optimizers.Adagrad(0.1), run_eagerly=BACKEND == "tensorflow")
    before = value(layer.tables[0]).copy()
    logs = [model.train_on_batch(tokens, targets, weights, return_dict=True) for _ in range(2)]
    moved = np.any(value(layer.tables[0]) != before, axis=1)
    assert np.isfinite(logs[1]["loss"]) and logs[1]["skipped"] == 0 and moved.any()
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert copy.loss.get_config() == layer.loss.get_config()


@pytest.mark.once
def test_what_buckets_cannot_do(monkeypatch):
    refused(SCE, 4, 0, 3, match="must be at least 1. Received: num_buckets=4, bucket_rows=0, bucket_classes=3")
    refused(made, sizes=(2, 2, 21), match="`bucket_classes` must be at most `vocabulary_size`, 20. Received: bucket_c")
    layer = made()
    with micro_batch(1):
        refused(layer.training_loss, HIDDEN, TARGETS, match="train with micro_batches=1")
    monkeypatch.setattr("keras_adaptive.losses.sce.replica_count", lambda: 2)
    refused(layer.training_loss, HIDDEN, TARGETS, match="SCE must be trained by one replica")
