import itertools

import numpy as np
import pytest

from keras_adaptive.ops import linear_cross_entropy
from keras_adaptive.ops.linear_cross_entropy import checked_inputs, sliced_total_and_rows
from keras_adaptive.ops.logit_chunks import Wanted
from tests.support.backends import MODES, value_and_gradients
from tests.support.closeness import all_close

ROWS, DIM, CHUNK, BOUNDARIES = 9, 4, 4, (0, 3, 7, 8)
TARGETS = np.array([[0, 2, 4, 3, 1, 0, 4, 3, 2], [-1, -1, 3, -1, 0, 1, 3, -1, -1], [-1] * ROWS])  # none in the last
WEIGHTS = np.linspace(0, 1, ROWS).astype("float32")


def terms_of(x, extra):
    """Returns the terms of three slices: a head with two further columns, a tail, and a tail without targets."""
    rows = [x, x * x, x + 1]
    return [
        {"x": one, "targets": targets, "extra_logits": None if number else extra}
        for number, (one, targets) in enumerate(zip(rows, TARGETS, strict=True))
    ]


def one_by_one(x, extra, table, *bias):
    places = itertools.pairwise(BOUNDARIES)
    return sum(
        linear_cross_entropy(
            table=table[low:high], weights=WEIGHTS, chunk_rows=CHUNK, bias=bias[0][low:high] if bias else None, **term
        )
        for term, (low, high) in zip(terms_of(x, extra), places, strict=True)
    )


def in_one(x, extra, table, *bias):
    bias = bias[0] if bias else None
    slices = [
        checked_inputs(one["x"], one["targets"], WEIGHTS, one["extra_logits"], None, table, bias)
        for one in terms_of(x, extra)
    ]
    return sliced_total_and_rows(slices, BOUNDARIES, 3 * [CHUNK], Wanted())[0]


@pytest.mark.parametrize("mode, biased", [(MODES[0], False), *((mode, True) for mode in MODES)])
def test_it_is_the_sum_over_slices_that_are_taken_one_by_one(mode, biased):
    random = np.random.default_rng(5)
    shapes = [(ROWS, DIM), (ROWS, 2), (BOUNDARIES[-1], DIM), *[BOUNDARIES[-1:]] * biased]
    arrays = [random.normal(size=shape).astype("float32") for shape in shapes]
    (value, gradients), (expected, of_each) = (value_and_gradients(one, arrays, mode) for one in (in_one, one_by_one))
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    all_close(gradients, of_each, rtol=1e-5, atol=1e-6)
    assert not gradients[2][7:].any()  # of the slice without targets
