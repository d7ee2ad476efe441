"""Ranks and the best words without the words that a row excludes, against all log-probabilities."""

import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveSoftmax, Output
from tests.support.backends import numpy, runner
from tests.support.refusals import refused
from tests.support.weights import built, exact_log_probs

VOCABULARY, DIM = 20, 8
TARGETS = np.array([[0, 4, 5, 9], [14, 15, 19, -1], [3, 8, 11, 19]], "int32")


class Plain(Output):
    """An output that knows no more than its log-probabilities."""

    vocabulary_size, boundaries = VOCABULARY, (0, VOCABULARY)

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def compute_log_probs(self, x):
        return self.layer.log_probs(x)


def softmax(kind):
    layer = built(AdaptiveSoftmax(VOCABULARY, (5, 9, 15) if kind == "bands" else (), factor=2, dtype="float32"), DIM)
    return (Plain(layer), layer) if kind == "any output" else (layer, layer)


@pytest.fixture
def hidden():
    return np.random.default_rng(1).normal(size=(3, 4, DIM)).astype("float32")


def excluded(hidden, layer):
    """Returns ids (3, 4, 12): the best words of each row, the target, repetitions, and ids outside the vocabulary."""
    order = np.argsort(-exact_log_probs(layer, hidden), axis=-1)
    ids = np.concatenate(
        [order[..., :6], order[..., 2:4], TARGETS[..., None], order[..., -1:], order[..., :2]], axis=-1
    )
    ids[0, :, 1], ids[1, :, 2] = -1, VOCABULARY
    return ids.astype("int32")


@pytest.mark.parametrize("kind", ["bands", "plain", "any output"])
def test_ranks_leave_out_excluded_words_but_never_the_target(kind, hidden):
    layer, truth = softmax(kind)
    ids = excluded(hidden, truth)
    log_probs, ranks = runner(layer.score)(hidden, TARGETS, ids)
    expected, values = np.ones(TARGETS.shape, "int64"), exact_log_probs(truth, hidden)
    for place in np.ndindex(*TARGETS.shape):
        target, row = TARGETS[place], values[place].copy()
        row[[word for word in ids[place] if 0 <= word < VOCABULARY and word != target]] = -np.inf
        expected[place] = 1 + np.sum(row > row[target]) if target >= 0 else 1
    np.testing.assert_array_equal(ranks, expected)
    own = np.take_along_axis(values, np.maximum(TARGETS, 0)[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(log_probs, np.where(TARGETS >= 0, own, 0.0), atol=5e-6)


def test_equal_words_are_in_the_order_of_their_ids(hidden):
    """All words of a band are equally probable; the excluded ones before and after a target."""
    layer, _ = softmax("bands")
    exclude = [[0, 0, 4], [1, 2, 4], [3, 4, 0], [-1, -1, -1]]
    ranks = numpy(layer.rank(0 * hidden[0], np.array([1, 3, 4, 4]), exclude))
    assert ranks.tolist() == [1, 2, 3, 5]


@pytest.mark.once
def test_excluded_words_of_another_shape_are_refused(hidden):
    layer, _ = softmax("plain")
    for wrong in ((3, 4), (3, 4, 0), (3, 1, 2), (4,)):
        refused(layer.rank, hidden, TARGETS, np.zeros(wrong, "int32"), match="`exclude` must hold one id or more")
    assert ops.shape(layer.rank(hidden, TARGETS, np.zeros((3, 4, 1), "int64"))) == (3, 4)
