"""The accuracy in training comes from the pass of the loss, and is that of the most probable words."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveSoftmax, WordEmbedding
from tests.support.backends import MODES, gradient_function, numpy, runner

SIZE, DIM, ROWS = 20, 8, 16
CUTOFFS = 5, 12
BITS = 2.0 ** np.arange(ROWS, dtype="float32")  # weights from whose sum the hit of each row can be read
KINDS = {
    "reduced": {"factor": 2},
    "one table": {"factor": None, "use_bias": True},
    "no cutoffs": {"cutoffs": ()},
    "float16": {"factor": 2, "dtype": "mixed_float16"},
}
CASES = [(kind, MODES[0]) for kind in KINDS] + [("reduced", mode) for mode in MODES[1:]]


def made(cutoffs=CUTOFFS, **options):
    keras.utils.set_random_seed(3)
    layer = AdaptiveSoftmax(SIZE, cutoffs, **options)
    layer.build((None, DIM))
    for variable in layer.trainable_variables:
        variable.assign(np.random.default_rng(4).normal(size=variable.shape))
    if cutoffs:  # so that the words of the tails are as good as those of the head
        layer.class_table.assign(3 * layer.class_table)
        for table in layer.tables[1:]:
            table.assign(3 * table)
    return layer


def zeros(cutoffs):
    layer = made(cutoffs, factor=2)
    layer.set_weights([0 * weight for weight in layer.get_weights()])
    return layer


def loss_and_hits(layer, *arrays):
    sums = layer.training_sums(*arrays, with_hits=True)
    return sums.loss, sums.hits


def top_k(layer, hidden, k):
    return runner(lambda hidden: layer.top_k(hidden, k)[1])(hidden)


def hits(layer, hidden, targets, mode=MODES[0]):
    """The hits (sets, rows) of several sets of targets, bool, by `training_sums`."""
    run, found = runner(lambda *arrays: (*loss_and_hits(layer, *arrays), layer.total_nll(*arrays)), mode), []
    for one in targets:
        loss, total, expected = run(hidden, one, BITS)
        np.testing.assert_allclose(loss, expected, rtol=1e-5 if layer.compute_dtype == "float32" else 1e-2)
        found.append((int(total) >> np.arange(ROWS)) & 1 == 1)
    return found


@pytest.mark.parametrize("kind, mode", CASES)
def test_hits_are_the_most_probable_words(kind, mode):
    """Best words of every band, second best ones, which another band may beat, and unknown ones."""
    layer, random = made(**KINDS[kind]), np.random.default_rng(5)
    hidden = (3 * random.normal(size=(ROWS, DIM))).astype("float32")
    order = top_k(layer, hidden, 2)
    if kind == "reduced":
        assert set(np.searchsorted(CUTOFFS, order[:, 0], "right")) == {0, 1, 2}
    mixed = np.where(np.arange(ROWS) % 3 == 0, -1, order[:, 0])
    expected = [np.ones(ROWS, bool), np.zeros(ROWS, bool), mixed >= 0]
    np.testing.assert_array_equal(hits(layer, hidden, [*order.T, mixed.astype("int32")], mode), expected)


TIES = [((5, 6, 7), 0.0, range(7)), ((5, 6, 7), 1.0, (5, 6))]
TIES += [((5, 18, 19), 0.0, (*range(5), 18, 19)), ((5, 18, 19), 1.0, (18, 19))]


@pytest.mark.parametrize("cutoffs, class_logit, best", TIES)
def test_of_equally_probable_words_the_first_is_the_best(cutoffs, class_logit, best):
    """Tails of one word are as probable as their columns: they tie with the head, or with one another."""
    layer = zeros(cutoffs)
    layer.class_table.assign(ops.full(layer.class_table.shape, class_logit / DIM))
    hidden = np.ones((ROWS, DIM), "float32")
    assert top_k(layer, hidden[:1], len(best))[0].tolist() == list(best)
    targets = np.arange(4, 4 + ROWS, dtype="int32")
    targets[:2] = 0, 1
    np.testing.assert_array_equal(hits(layer, hidden, [targets]), [targets == best[0]])


def test_a_tail_is_compared_row_by_row():
    """The column of the tail is more probable than any head word in every row, a word of it in a single row."""
    layer = zeros((5, 9))
    layer.class_table.assign(3 * np.eye(1, DIM).repeat(2, axis=0))
    layer.tables[-1].assign(9 * np.eye(*layer.tables[-1].shape))
    layer.projections[-1].assign(np.eye(*layer.projections[-1].shape, k=-1))
    layer.tables[0].assign(2 * np.eye(5, DIM))
    hidden = np.ones((ROWS, DIM), "float32") * (np.arange(DIM) == 0)
    hidden[3, 1] = 1.0
    best = top_k(layer, hidden, 1)[:, 0]
    assert best[3] >= 9 and (np.delete(best, 3) == 0).all()
    np.testing.assert_array_equal(hits(layer, hidden, [np.zeros(ROWS, "int32")])[0], best == 0)


def test_nothing_is_best_where_probabilities_are_not_numbers():
    arrays = np.full((ROWS, DIM), np.nan, "float32"), np.arange(ROWS, dtype="int32"), BITS
    assert not numpy(loss_and_hits(made(factor=2), *map(ops.convert_to_tensor, arrays))[1])


def test_tails_are_computed_only_for_rows_that_need_them(monkeypatch):
    """No row is left where the head decides; accuracy once cost a second pass over all rows."""
    layer, hidden = made(factor=2), np.random.default_rng(5).normal(size=(ROWS, DIM)).astype("float32")
    layer.class_table.assign(ops.full(layer.class_table.shape, -9.0))
    hidden = np.abs(hidden)
    monkeypatch.setattr("keras_adaptive.layers.outputs.output.top_k", None)  # a pass of its own would need it
    monkeypatch.setattr("keras_adaptive.layers.outputs.banded_softmax.top_k", None)
    passed = []

    def update_rows(function, active, inputs, outputs, columns):
        passed.append(bool(numpy(ops.any(active))))
        return outputs

    monkeypatch.setattr("keras_adaptive.layers.outputs.banded_softmax.update_rows", update_rows)
    loss_and_hits(layer, *map(ops.convert_to_tensor, (hidden, np.arange(ROWS, dtype="int32") % 5, BITS)))
    assert passed == [False, False]


def test_hits_change_no_gradient():
    layer = made(factor=2)
    targets, weights = (ops.convert_to_tensor(a) for a in (np.arange(ROWS, dtype="int32"), np.ones(ROWS, "float32")))
    hidden = np.random.default_rng(5).normal(size=(ROWS, DIM)).astype("float32")
    alone = gradient_function(lambda x: layer.total_nll(x, targets, weights))(hidden)
    both = gradient_function(lambda x: sum(loss_and_hits(layer, x, targets, weights)))(hidden)
    np.testing.assert_array_equal(alone, both)


def test_the_best_words_of_a_tied_table_are_hits():
    layer, hidden = made(tied_to=WordEmbedding(SIZE, DIM)), np.eye(ROWS, DIM, dtype="float32")
    best = top_k(layer, hidden, 1)[:, 0]
    assert runner(functools.partial(loss_and_hits, layer))(hidden, best, BITS)[1] == BITS.sum()
