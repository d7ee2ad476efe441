"""Ranks and the best words without the words that a row excludes, against all log-probabilities."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveSoftmax, Output
from keras_adaptive.ops import long_tables
from tests.support.backends import BACKEND, largest_array, numpy, runner
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


ALLOWED = np.isin(np.arange(VOCABULARY), [1, 4, 5, 7, 8, 9, 12, 14, 16, 18, 19])


def best_words(values, k, exclude=None, allowed=None):
    """Returns the ids (…, k) of the best words that remain, −1 where there are none."""
    best = np.full((*values.shape[:-1], k), -1)
    for place in np.ndindex(*values.shape[:-1]):
        left_out = set() if exclude is None else set(exclude[place].tolist())
        left_out |= set() if allowed is None else set(np.flatnonzero(~allowed).tolist())
        order = [word for word in np.argsort(-values[place]) if word not in left_out]
        best[place][: len(order)] = order[:k]
    return best


@pytest.mark.parametrize("short", [False, True], ids=["whole", "in chunks"])
@pytest.mark.parametrize("kind", ["bands", "plain", "any output"])
def test_the_best_words_without_excluded_ones_and_among_allowed_ones(kind, short, hidden, monkeypatch):
    """More words than the head has, and than remain."""
    if short:  # all bands are long: blocks of 2 words, 4 words at a time, of 5 rows
        for name, number in {"BLOCK": 2, "ROWS": 5, "LOGITS": 20}.items():
            monkeypatch.setattr(long_tables, name, number)
    layer, truth = softmax(kind)
    ids, values = excluded(hidden, truth), exact_log_probs(truth, hidden)
    calls = [(1, ()), (2, ()), (3, ["exclude"]), (1, ["allowed"]), (4, ["allowed"]), (14, ["exclude", "allowed"])]

    def methods(hidden, exclude, allowed):
        given = {"exclude": exclude, "allowed": allowed}
        return [layer.top_k(hidden, k, **{name: given[name] for name in names}) for k, names in calls]

    found, given = runner(methods)(hidden, ids, ALLOWED), {"exclude": ids, "allowed": ALLOWED}
    for (k, names), (log_probs, best) in zip(calls, found, strict=True):
        expected = best_words(values, k, **{name: given[name] for name in names})
        np.testing.assert_array_equal(best, expected)
        own = np.where(expected < 0, -np.inf, np.take_along_axis(values, np.maximum(expected, 0), axis=-1))
        np.testing.assert_allclose(log_probs, own, atol=5e-6)
    assert found[-1][1].min() == -1


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only its graphs have arrays of unknown size")
@pytest.mark.parametrize("kind", ["bands", "any output"])
def test_the_number_of_excluded_words_may_be_unknown(kind, hidden, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(long_tables, "ROWS", 5)
    monkeypatch.setattr(long_tables, "LOGITS", 100)
    layer, truth = softmax(kind)
    ids, calls = excluded(hidden, truth), [(3, None), (14, ALLOWED)]

    @tf.function(input_signature=[tf.TensorSpec((None, None, DIM)), tf.TensorSpec((None, None, None), "int32")])
    def methods(hidden, exclude):
        scores = layer.score(hidden, tf.constant(TARGETS), exclude)
        return scores, [layer.top_k(hidden, k, exclude, allowed) for k, allowed in calls]

    for exclude in (ids, ids[..., :1], ids[..., :0]):
        scores, best = keras.tree.map_structure(numpy, methods(hidden, exclude))
        if exclude.size:
            for one, expected in zip(scores, layer.score(hidden, TARGETS, exclude), strict=True):
                np.testing.assert_allclose(one, expected, atol=5e-6)
        for (k, allowed), (log_probs, found) in zip(calls, best, strict=True):
            expected = layer.top_k(hidden, k, exclude if exclude.size else None, allowed)
            np.testing.assert_array_equal(found, expected[1])
            np.testing.assert_allclose(log_probs, expected[0], atol=5e-6)


@pytest.mark.parametrize("cutoffs", [(5, 9, 15), ()], ids=str)
def test_equal_words_of_chunks_are_in_the_order_of_their_ids(cutoffs, hidden, monkeypatch):
    for name, number in {"BLOCK": 2, "ROWS": 5, "LOGITS": 20}.items():
        monkeypatch.setattr(long_tables, name, number)
    layer = built(AdaptiveSoftmax(VOCABULARY, cutoffs, factor=2, dtype="float32"), DIM)
    hidden = 0 * hidden[0]
    order = np.argsort(-exact_log_probs(layer, hidden), axis=-1, kind="stable")
    np.testing.assert_array_equal(numpy(layer.top_k(hidden, 6)[1]), order[:, :6])
    np.testing.assert_array_equal(numpy(layer.top_k(hidden, 3, exclude=order[:, 1:3])[1]), order[:, [0, 3, 4]])


def test_a_long_table_is_never_read_at_once():
    """As the largest arrays are those of a chunk, of the vectors of the best blocks, and of the maxima."""
    layer = built(AdaptiveSoftmax(200_000, ()), 4)
    states = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    best = lambda h: ops.sum(0 * h) + ops.sum(layer.top_k(ops.stop_gradient(h), 2)[0])  # noqa: E731
    assert largest_array(best, states) <= long_tables.LOGITS < 64 * 200_000


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
    refused(layer.top_k, hidden, 2, np.zeros((3, 2), "int32"), match="`exclude` must hold one id or more")
    refused(layer.top_k, hidden, 2, allowed=np.ones(7, bool), match="`allowed` must have the shape .20,. of the voc")
    refused(layer.top_k, hidden, 2, allowed=np.zeros(20, bool), match="`allowed` must be true for at least one word")
    refused(layer.top_k, hidden, 21, match="`k` must be between 1 and 20. Received: k=21")
    assert ops.shape(layer.rank(hidden, TARGETS, np.zeros((3, 4, 1), "int64"))) == (3, 4)
