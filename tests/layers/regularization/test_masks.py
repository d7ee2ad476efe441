"""Which values, time steps and micro-batches share a mask of dropout, and when a new mask is drawn."""

import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import EmbeddingDropout, SeededDropout, VariationalDropout, WeightDrop, WordEmbedding
from keras_adaptive.layers.regularization.seeds import micro_batch
from tests.support.backends import MODES, gradient_function, runner, weight_gradients
from tests.support.weights import built, value

ONES = np.ones((3, 5, 200), "float32")
LAYERS = [SeededDropout, VariationalDropout, WeightDrop]


def drawn(layer, calls=1, values=ONES):
    """The masks of `calls` calls in one compiled function."""
    return runner(lambda x: [layer(x, training=True) for _ in range(calls)])(values)


@pytest.mark.parametrize("kind", LAYERS)
def test_kept_values_are_scaled_and_each_call_draws_anew(kind):
    layer = kind(0.25, seed=3)
    alike, other = kind(0.25, seed=3), kind(0.25, seed=4)
    run = runner(lambda x: [*(one(x, training=True) for one in (layer, layer, alike, other)), layer(x)])
    first, second, same, different, untouched = run(ONES)
    for mask in (first, second):
        np.testing.assert_allclose(np.unique(mask), [0, 4 / 3], rtol=1e-6)
        assert 0.15 < np.mean(mask == 0) < 0.35
    assert np.any(first != second)
    np.testing.assert_array_equal(same, first)
    assert np.any(different != first)
    np.testing.assert_array_equal(untouched, ONES)


def test_a_variational_mask_is_one_per_row_and_channel():
    (mask,) = drawn(VariationalDropout(0.5))
    np.testing.assert_array_equal(mask, np.broadcast_to(mask[:, :1], mask.shape))
    assert np.any(mask[0] != mask[1]) and np.any(mask[1] != mask[2])


def test_gradients_flow_through_the_mask():
    layer, again = (WeightDrop(0.5, seed=3) for _ in range(2))
    gradient, _ = gradient_function(lambda x, weight: ops.sum(weight * layer(x, training=True)))(ONES, 3 * ONES)
    np.testing.assert_array_equal(gradient, 3 * drawn(again)[0])


@pytest.mark.parametrize("mode", MODES)
def test_whole_words_are_dropped(mode):
    """The vectors and the gradient of the table are those of a table whose dropped rows are 0, and the rest scaled."""
    first, again = alike = [WordEmbedding(40, 6, embedding_dropout=0.4) for _ in range(2)]
    for words in alike:
        words._drop = EmbeddingDropout(0.4, 40, seed=3)
        built(words)
    ids = np.random.default_rng(0).integers(-1, 40, (8, 30)).astype("int32")  # -1 is no word
    weight = np.random.default_rng(1).normal(size=(8, 30, 6)).astype("float32")
    vectors = runner(lambda ids: first(ids, training=True), mode)(ids)
    plain, inside = np.where(ids[..., None] < 0, 0.0, value(first.tables[0])[ids]), ids >= 0
    kept = np.array([np.any(vectors[ids == id] != 0) for id in range(40)])
    assert 14 < kept.sum() < 34
    factors = np.where(kept, 1 / 0.6, 0.0)[ids][..., None]
    np.testing.assert_allclose(vectors, factors * plain, rtol=1e-6)
    loss = lambda: ops.sum(ops.multiply(again(ids, training=True), weight))  # noqa: E731
    _, (gradient,) = weight_gradients(loss, again.tables, mode=mode)
    expected = np.zeros((40, 6))
    np.add.at(expected, ids[inside], (factors * weight)[inside])
    np.testing.assert_allclose(gradient, expected, atol=1e-5)
    np.testing.assert_allclose(runner(again, mode)(ids), plain, rtol=1e-6)


def test_words_are_drawn_anew_and_scaled():
    ids = np.tile(np.arange(400, dtype="int32"), (2, 1))
    layer = EmbeddingDropout(0.25, 400, seed=3)
    call = lambda vectors, ids: [layer(vectors, ids, training=True) for _ in range(2)]  # noqa: E731
    first, second = runner(call)(np.ones((2, 400, 3), "float32"), ids)
    np.testing.assert_allclose(np.unique(first), [0, 4 / 3], rtol=1e-6)
    np.testing.assert_array_equal(first, np.broadcast_to(first[:1, :, :1], first.shape))
    assert 0.15 < np.mean(first == 0) < 0.35 and np.any(first != second)


class WordsOf(EmbeddingDropout):
    """Embedding dropout of vectors in the order of the words."""

    def __init__(self, rate, seed):
        super().__init__(rate, ONES.shape[1], seed=seed)

    def call(self, vectors, training=False):
        return super().call(vectors, ops.arange(ONES.shape[1]), training=training)


@pytest.mark.parametrize("kind, shared", [(WeightDrop, True), (WordsOf, True), (SeededDropout, False)])
def test_micro_batches_of_an_update_share_the_masks_of_weights(kind, shared):
    layer = kind(0.5, seed=3)

    def update(x):
        masks = []
        for number in range(3):
            with micro_batch(number):
                masks.append(layer(x, training=True))
        return masks

    first, second, state = runner(lambda x: [update(x), update(x), layer.seed_generator.state.value])(ONES)
    assert all(np.array_equal(first[0], mask) == shared for mask in first[1:])
    assert np.any(second[0] != first[0])
    assert state[1] == (2 if shared else 6)
