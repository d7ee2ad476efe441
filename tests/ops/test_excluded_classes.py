"""The class that a row of `linear_cross_entropy` leaves out of its softmax."""

import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops import linear_cross_entropy
from keras_adaptive.ops.chunks import CPU
from tests.support import oracle
from tests.support.backends import MODES, differentiated, value_and_gradients
from tests.support.chunks import set_chunk_sizes
from tests.support.closeness import close

ROWS, DIM, CLASSES, CHUNK = 11, 4, 7, 4
ROWS_FIRST = CPU["jax"].rows_first
TARGETS = np.array([7, 6, 8, 7, 3, -1, 5, 0, 1, 2, 7], "int32")  # 7 and 8 are extra columns
WEIGHTS = np.array([1, 0, 1, 2, 0.5, 1, 1, 1, 1, 1, 1], "float32")
CASES = {
    "none": np.full(ROWS, -1),
    "some": np.array([0, 1, -1, 6, 2, 2, -1, 6, 3, 3, 5]),
    "in every row": (np.maximum(TARGETS, 0) + 1) % CLASSES,
}
random = np.random.default_rng(3)
X, TABLE, EXTRA, BIAS = ARRAYS = [
    random.normal(size=size).astype("float32") for size in ((ROWS, DIM), (CLASSES, DIM), (ROWS, 2), CLASSES)
]


def total(x, table, extra, bias, targets, weights, excluded, chunk_rows=CHUNK):
    return linear_cross_entropy(x, table, targets, weights, extra, chunk_rows, bias, excluded)


def exact(excluded):
    return oracle.linear_cross_entropy(X, TABLE, TARGETS, WEIGHTS, EXTRA, BIAS, excluded)


@pytest.fixture(scope="module", params=MODES)
def op(request):
    """Value and gradients of any case, compiled once."""
    return differentiated(total, request.param)


@pytest.mark.parametrize("case", CASES)
def test_value_and_gradients(case, op):
    excluded = CASES[case].astype("int32")
    close(op(ARRAYS, TARGETS, WEIGHTS, excluded), exact(excluded))


@pytest.mark.parametrize("above", [30, 1_000, 1e6])
def test_a_class_that_dominates_leaves_no_trace(above, op):
    """A subtraction would fail where the sum has swallowed the other classes."""
    excluded = np.full(ROWS, 4, "int32")
    high = BIAS + above * (np.arange(CLASSES) == 4).astype("float32")
    value, gradients = op([X, TABLE, EXTRA, high], TARGETS, WEIGHTS, excluded)
    close((value, gradients), exact(excluded))
    assert gradients[3][4] == 0 and not gradients[1][4].any()


@pytest.mark.parametrize("chunk_rows", [1, ROWS_FIRST])
def test_without_bias_and_extra_logits(chunk_rows):
    targets = np.where(TARGETS < CLASSES, TARGETS, -1)
    excluded = CASES["in every row"].astype("int32")
    found = value_and_gradients(
        lambda x, table: total(x, table, None, None, targets, WEIGHTS, excluded, chunk_rows), [X, TABLE]
    )
    close(found, oracle.linear_cross_entropy(X, TABLE, targets, WEIGHTS, excluded=excluded))


def test_a_table_whose_only_class_is_excluded_leaves_the_extra_logits():
    targets, excluded = np.full(ROWS, 1, "int32"), np.zeros(ROWS, "int32")
    value, gradients = value_and_gradients(
        lambda *tensors: total(*tensors, targets, WEIGHTS, excluded), [X, TABLE[:1], EXTRA[:, :1], BIAS[:1]]
    )
    assert value == 0
    close(gradients, [0 * gradient for gradient in gradients], 1e-20)


def test_blocks_of_rows_change_nothing(monkeypatch):
    """Under torch, the softmax of a chunk in bfloat16 runs over a few rows at a time."""
    excluded = CASES["some"].astype("int32")

    def narrow(x, *rest):
        return total(ops.cast(x, "bfloat16"), *rest, TARGETS, WEIGHTS, excluded, chunk_rows=ROWS)

    found = value_and_gradients(narrow, ARRAYS)
    set_chunk_sizes(monkeypatch, block_bytes=4 * 2 * (CLASSES + 2))  # two rows
    close(value_and_gradients(narrow, ARRAYS), found, 1e-6)
    close(found, exact(excluded), 2e-2)
