"""The cutoffs of the fewest products, compared with all cutoffs of small vocabularies."""

import itertools

import numpy as np
import pytest

from keras_adaptive.data import best_cutoffs, cost_of_cutoffs, cutoffs
from tests.support.refusals import refused

pytestmark = pytest.mark.once


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("coverage", [0.0, 0.85])
def test_no_other_cutoffs_are_cheaper(monkeypatch, seed, coverage):
    random = np.random.default_rng(seed)
    monkeypatch.setattr(cutoffs, "PER_BAND", int(random.choice([0, 5, 50])))
    monkeypatch.setattr(cutoffs, "_LEAST_DIM", 1)
    size, dim, factor = int(random.integers(1, 24)), int(random.choice([8, 64])), int(random.choice([0, 1, 2, 4]))
    counts = random.zipf(1.5, size)
    counts = np.sort(counts)[::-1] if seed % 2 else counts
    how = {"input_dim": int(random.choice([dim, 2 * dim])), "factor": factor}
    widths = [how["input_dim"] // factor**band if factor else dim for band in range(4)]
    most = min(3, sum(width >= 1 for width in widths) - 1)
    choices = [each for number in range(most + 1) for each in itertools.combinations(range(1, size), number)]
    allowed = [each for each in choices if not each or counts[: each[0]].sum() >= coverage * counts.sum()]
    best = best_cutoffs(counts, dim, coverage=coverage, **how)
    assert best in allowed
    costs = [cost_of_cutoffs(counts, each, dim, **how) for each in allowed]
    assert cost_of_cutoffs(counts, best, dim, **how) == pytest.approx(min(costs), rel=1e-9)


def test_the_cost_of_cutoffs_by_hand():
    counts = [6, 2, 1, 1]
    assert cost_of_cutoffs(counts, (), 16) == 4 * 16
    head, classes = 1 * 16, 2 * 16
    tails = 0.2 * 4 * (16 + 1) + 0.2 * 1 * (16 + 2)  # dimensions 16 // 4 and 16 // 16
    assert cost_of_cutoffs(counts, (1, 2), 16) == pytest.approx(head + classes + tails + 2 * cutoffs.PER_BAND)
    tails = 0.2 * 2 * (16 + 1) + 0.2 * 2 * (16 + 2)
    cost = cost_of_cutoffs(counts, (1, 2), 16, input_dim=2, factor=0)
    assert cost == pytest.approx(1 * 2 + classes + tails + 2 * cutoffs.PER_BAND)


def test_a_large_vocabulary():
    counts = 10**9 // np.arange(1, 267_745)
    best = best_cutoffs(counts, 1024)
    assert counts[: best[0]].sum() >= 0.85 * counts.sum() > counts[: best[0] - 1].sum()
    assert len(best) > 1 and cost_of_cutoffs(counts, best, 1024) < cost_of_cutoffs(counts, (), 1024) / 5


@pytest.mark.parametrize("counts", [[5], [5] * 205, np.ones(8)])
def test_small_vocabularies_have_one_band(counts):
    assert best_cutoffs(counts, 256) == ()


def test_what_makes_no_sense():
    refused(best_cutoffs, [0, 0], 8, match="`counts` must have a positive sum")
    refused(best_cutoffs, [1, 1], 8, coverage=1, match="`coverage` must be from 0 to below 1. Received: coverage=1")
