import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops.long_rows import BLOCK, count_before, draw, top_k
from tests.support.backends import runner

COLUMNS = [5, BLOCK, 3 * BLOCK + 7, 40 * 64, 9 * BLOCK]


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("k", [1, 3])
def test_top_k_finds_the_largest(columns, k):
    x = np.random.default_rng(0).permutation(6 * columns).reshape(2, 3, columns).astype("float32")
    values, ids = runner(lambda x: top_k(x, k))(x)
    order = np.argsort(-x, axis=-1)[..., :k]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis=-1))


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("k", [1, 3])
def test_equal_entries_are_in_the_order_of_columns(columns, k):
    """Rows of few values, constants, infinities and NaN: the places are those that `count_before` counts."""
    random = np.random.default_rng(0)
    x = random.integers(1, 5, size=(7, columns)).astype("float32")
    x[1], x[2], x[3], x[4, : columns - 2] = 0.0, np.nan, -np.inf, np.nan
    x[5, ::2], x[6, columns // 2] = np.nan, np.inf
    every = np.broadcast_to(np.arange(columns, dtype="int32")[:, None], (columns, 7))

    def best_and_counts(x, every):
        counts = [count_before(x, ops.take_along_axis(x, ids[:, None], axis=-1)[:, 0], ids) for ids in every]
        return *top_k(x, k), ops.stack(counts)

    values, ids, counts = runner(best_and_counts)(x, every[:: max(1, columns // 16)])
    order = np.argsort(-np.where(np.isnan(x), -np.inf, x), axis=-1, kind="stable")
    np.testing.assert_array_equal(ids, order[:, :k])
    np.testing.assert_array_equal(values, np.take_along_axis(x, order[:, :k], axis=-1))
    of_numbers = ~np.isnan(x).any(axis=-1)
    places = np.argsort(order, axis=-1).T[:: max(1, columns // 16)]
    np.testing.assert_array_equal(counts[:, of_numbers], places[:, of_numbers])


@pytest.mark.parametrize("columns", COLUMNS)
def test_draw_inverts_the_cumulative_distribution(columns):
    random = np.random.default_rng(0)
    logits = random.normal(size=(1, columns))
    logits[0, columns // 2] = -np.inf  # never drawn
    uniform = random.random(4_000).astype("float32")
    ids = runner(draw)(np.repeat(logits, len(uniform), axis=0).astype("float32"), uniform)
    ends = np.cumsum(np.exp(logits[0].astype("float32"), dtype="float64"))
    ends /= ends[-1]
    starts = np.concatenate([[0], ends[:-1]])
    assert np.all((starts[ids] - 1e-5 <= uniform) & (uniform <= ends[ids] + 1e-5))
    assert columns // 2 not in ids


@pytest.mark.parametrize("columns", COLUMNS)
def test_the_ends_of_the_unit_interval(columns):
    logits = np.full((2, columns), -np.inf, "float32")
    logits[:, columns // 3] = 0.0  # the only one, whatever is drawn
    ids = runner(draw)(logits, np.array([0.0, np.nextafter(np.float32(1), np.float32(0))], "float32"))
    np.testing.assert_array_equal(ids, columns // 3)


@pytest.mark.parametrize("columns", COLUMNS)
def test_nothing_is_drawn_without_a_distribution(columns):
    logits = np.zeros((4, columns), "float32")
    logits[0, columns // 2], logits[1, -1], logits[2] = np.nan, np.inf, -np.inf
    ids = runner(draw)(logits, np.full(4, 0.5, "float32"))
    np.testing.assert_array_equal(ids[:3], -1)
    assert 0 <= ids[3] < columns
