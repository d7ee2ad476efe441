import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.metrics import frequency_bins
from keras_adaptive.metrics.frequency_bins import loss_by_frequency

COUNTS = np.array([0, 1, 9, 10, 99, 100, 5000])


def test_bins_are_powers_of_ten_by_default():
    bins = loss_by_frequency([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], [[0, 1, 2], [3, 4, 6]], COUNTS)
    assert bins == [
        {"low": 0, "high": 1, "tokens": 1, "nll": 1.0},
        {"low": 1, "high": 10, "tokens": 2, "nll": 3.0},
        {"low": 10, "high": 100, "tokens": 2, "nll": 12.0},
        {"low": 1000, "high": None, "tokens": 1, "nll": 32.0},
    ]


def test_edges_begin_their_bin():
    bins = loss_by_frequency([1.0, 2.0], [2, 3], COUNTS, edges=[0, 10])
    assert [(b["low"], b["high"], b["tokens"]) for b in bins] == [(0, 10, 1), (10, None, 1)]


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 6)), min_size=1))
def test_bins_make_up_the_whole(tokens):
    nll, targets = np.array(tokens).T
    bins = loss_by_frequency(nll, targets.astype(int), COUNTS)
    assert sum(b["tokens"] for b in bins) == len(tokens)
    assert sum(b["tokens"] * b["nll"] for b in bins) == pytest.approx(nll.sum())


def test_sums_are_float64():
    assert loss_by_frequency([0.1, 0.2], [6, 6], COUNTS)[0]["nll"] == (0.1 + 0.2) / 2


def test_example():
    results = doctest.testmod(frequency_bins)
    assert results.attempted and not results.failed


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"nll": [1.0, 2.0]}, "one shape"),
        ({"targets": [7]}, r"in \[0, 7\), the length of `counts`. Received: 7 to 7"),
        ({"targets": [-1]}, "Received: -1"),
        ({"edges": [1, 10]}, "must begin with 0"),
        ({"edges": [0, 10, 10]}, "increase"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        loss_by_frequency(**{"nll": [1.0], "targets": [1], "counts": COUNTS} | arguments)
