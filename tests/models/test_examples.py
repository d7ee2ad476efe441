"""The layers in models of Keras, with nothing but Keras' own habits."""

import keras
import numpy as np

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from tests.support import oracle
from tests.support.backends import BACKEND
from tests.support.tiny import weights_of
from tests.support.weights import softmax_weights

ITEMS, HISTORY = 300, 4


def recommender():
    """The next item after a history of items: hidden vectors (batch, dim) and targets (batch,)."""
    history = keras.Input((HISTORY,), dtype="int32", name="history")
    target = keras.Input((), dtype="int32", name="next_item")
    items = AdaptiveEmbedding(ITEMS, 16, (20, 100), factor=2, name="items")
    hidden = keras.layers.GRU(16, name="body")(items(history))
    softmax = AdaptiveSoftmax(ITEMS, (20, 100), factor=2, tied_to=items, name="softmax")
    return keras.Model([history, target], softmax(hidden, target)), keras.Model(history, hidden)


def test_a_recommender_of_the_next_item(tmp_path):
    start = np.random.default_rng(0).integers(0, ITEMS, 64)
    items = (start[:, None] + np.arange(HISTORY + 1)) % ITEMS
    history, target = items[:, :-1], items[:, -1]
    model, body = recommender()
    model.compile(keras.optimizers.Adam(0.02), run_eagerly=BACKEND == "tensorflow")
    losses = model.fit([history, target], batch_size=64, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]

    softmax, hidden = model.get_layer("softmax"), body.predict(history, batch_size=64, verbose=0)
    log_probs = oracle.adaptive_log_probs(hidden, *softmax_weights(softmax))
    expected = -np.mean(log_probs[np.arange(64), target])
    np.testing.assert_allclose(model.evaluate([history, target], batch_size=64, verbose=0)[0], expected, rtol=1e-5)
    best = keras.ops.convert_to_numpy(softmax.top_k(hidden, 5)[1])
    np.testing.assert_array_equal(best, np.argsort(-log_probs, axis=-1)[:, :5])

    model.save(tmp_path / "recommender.keras")
    loaded = keras.saving.load_model(tmp_path / "recommender.keras")
    for one, other in zip(weights_of(loaded), weights_of(model), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.get_layer("softmax").tied_to is loaded.get_layer("items")


def test_padding_in_a_model_of_keras():
    """With weights as a third input the loss is the mean over the targets that count."""
    hidden, targets, weights = (
        keras.Input(shape, dtype=dtype) for shape, dtype in (((5, 8), "float32"), ((5,), "int32"), ((5,), "float32"))
    )
    softmax = AdaptiveSoftmax(20, (5, 12), factor=2)
    model = keras.Model([hidden, targets, weights], softmax(hidden, targets, weights))
    model.compile("sgd")
    random = np.random.default_rng(0)
    x, y = random.normal(size=(3, 5, 8)).astype("float32"), random.integers(0, 20, (3, 5))
    w = random.integers(0, 2, (3, 5)).astype("float32")
    nll = keras.ops.convert_to_numpy(softmax.nll(x, y))
    np.testing.assert_allclose(model.evaluate([x, y, w], verbose=0)[0], np.average(nll, weights=w), rtol=1e-5)
    assert model.evaluate([x, y, 0 * w], verbose=0) == [0, 1]


def test_without_targets_the_endpoint_gives_log_probs():
    softmax = AdaptiveSoftmax(20, (5, 12), factor=2)
    hidden = keras.Input((5, 8))
    model = keras.Model(hidden, softmax(hidden))
    assert model.output_shape == (None, 5, 20)
    log_probs = model.predict(np.ones((2, 5, 8), "float32"), verbose=0)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=-1), 1.0, atol=1e-5)
