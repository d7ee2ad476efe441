import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.metrics.frequency_bins import loss_by_bucket, loss_by_frequency
from tests.support.refusals import refused

pytestmark = pytest.mark.once

COUNTS = np.array([0, 1, 9, 10, 99, 100, 5000])


def test_bins_are_powers_of_ten_by_default():
    bins = loss_by_frequency([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], [[0, 1, 2], [3, 4, 6]], COUNTS)
    assert bins == [
        {"low": 0, "high": 1, "tokens": 1, "nll": 1.0},
        {"low": 1, "high": 10, "tokens": 2, "nll": 3.0},
        {"low": 10, "high": 100, "tokens": 2, "nll": 12.0},
        {"low": 1000, "high": None, "tokens": 1, "nll": 32.0},
    ]


def test_buckets_hold_equally_many_tokens_from_frequent_to_rare():
    nll, targets = np.arange(50.0).reshape(5, 10), np.arange(50).reshape(5, 10) % 7
    buckets = loss_by_bucket(nll, targets, COUNTS, 3)
    assert [bucket["tokens"] for bucket in buckets] == [17, 17, 16]
    assert [(bucket["most"], bucket["least"]) for bucket in buckets] == [(5000, 99), (99, 9), (9, 0)]
    assert sum(bucket["tokens"] * bucket["nll"] for bucket in buckets) / 50 == pytest.approx(nll.mean())
    frequent = sorted(zip(-COUNTS[targets.ravel()], nll.ravel()))[:17]  # the losses are in the order of the text
    assert buckets[0]["nll"] == pytest.approx(np.mean([loss for _, loss in frequent]))
    assert len(loss_by_bucket(nll, targets, COUNTS)) == 25


def test_a_text_that_is_shorter_than_the_buckets():
    assert [bucket["tokens"] for bucket in loss_by_bucket([1.0, 2.0], [1, 2], COUNTS)] == [1, 1]
    assert loss_by_bucket([], np.zeros(0, int), COUNTS) == []


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


def test_refuses():
    refused(loss_by_frequency, [1.0, 2.0], [1], COUNTS, match="one shape")
    message = r"in \[0, 7\), the length of `counts`. Received: ids from 7 to 7"
    refused(loss_by_frequency, [1.0], [7], COUNTS, match=message)
    refused(loss_by_frequency, [1.0], [-1], COUNTS, match="Received: ids from -1")
    refused(loss_by_frequency, [1.0], [1], COUNTS, edges=[1, 10], match="must begin with 0")
    refused(loss_by_frequency, [1.0], [1], COUNTS, edges=[0, 10, 10], match="increase")
