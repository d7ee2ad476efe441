"""The continuous cache against its formula, word by word."""

import numpy as np
import pytest

from keras_adaptive.memory import ContinuousCache, continuous_cache
from tests.support.refusals import refused

pytestmark = pytest.mark.once

TOKENS, DIM = 40, 5


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(continuous_cache, "ROWS", 7)


@pytest.fixture
def text():
    """Hidden states, words of which some repeat, and losses of a model."""
    random = np.random.default_rng(0)
    hidden = random.normal(size=(TOKENS, DIM)).astype("float32")
    return hidden, random.integers(4, 9, TOKENS), random.uniform(0.5, 4, TOKENS)


def formula(cache, hidden, targets, nll):
    """The loss of each word: 1 - share of the model and share of the cache."""
    result = []
    for place, (target, of_model) in enumerate(zip(targets, np.exp(-nll))):
        kept = range(max(place - cache.size, 0), place)
        weights = [np.exp(cache.flatness * float(hidden[place] @ hidden[one])) for one in kept]
        same = [weight for weight, one in zip(weights, kept) if targets[one] == target]
        probability = (1 - cache.share) * of_model + cache.share * sum(same) / sum(weights) if weights else of_model
        result.append(-np.log(probability))
    return np.array(result)


@pytest.mark.parametrize("size", [1, 3, 7, 20, 39, 100])
@pytest.mark.parametrize("flatness, share", [(0.7, 0.3), (0.0, 0.1), (2.0, 0.0)])
def test_it_is_the_formula(size, flatness, share, text):
    cache = ContinuousCache(size, flatness, share)
    np.testing.assert_allclose(cache.nll(*text), formula(cache, *text), rtol=1e-6)


def test_the_cache_alone_knows_no_other_words(text):
    hidden, _, nll = text
    found = ContinuousCache(4, 1.0, 1.0).nll(hidden, np.arange(TOKENS), nll)
    assert found[0] == nll[0] and np.isinf(found[1:]).all()


def test_later_words_change_nothing(text):
    hidden, targets, nll = text
    cache, place = ContinuousCache(10, 0.5, 0.2), 17
    before = cache.nll(*text)
    hidden, targets = hidden.copy(), targets.copy()
    hidden[place + 1 :], targets[place + 1 :] = 3.0, 5
    np.testing.assert_array_equal(cache.nll(hidden, targets, nll)[: place + 1], before[: place + 1])


def test_large_products_are_finite(text):
    hidden, targets, nll = text
    assert np.isfinite(ContinuousCache(10, 1e4, 0.2).nll(hidden, targets, nll)).all()


def test_the_tuned_cache_is_the_best_of_the_grid(text):
    found = ContinuousCache.tuned(12, *text)
    scale = np.mean(np.sum(text[0].astype("float64") ** 2, axis=1))
    losses = {
        (flatness, share): ContinuousCache(12, flatness / scale, share).nll(*text).mean()
        for flatness in continuous_cache.FLATNESS
        for share in continuous_cache.SHARES
    }
    flatness, share = min(losses, key=losses.get)
    assert (found.size, found.share) == (12, share) and found.flatness == pytest.approx(flatness / scale)
    assert np.isfinite(ContinuousCache.tuned(3, np.zeros((4, 2)), np.ones(4), np.ones(4)).flatness)


@pytest.mark.parametrize(
    "numbers, match",
    [
        ((0, 1.0, 0.1), "`size` of at least 1, .* Received: size=0"),
        ((5, -1.0, 0.1), "flatness=-1.0"),
        ((5, float("nan"), 0.1), "flatness=nan"),
        ((5, 1.0, 1.5), "`share` from 0 to 1.* share=1.5"),
    ],
)
def test_numbers_out_of_range(numbers, match, text):
    refused(ContinuousCache(*numbers).nll, *text, match=match)


def test_arrays_of_other_lengths(text):
    hidden, targets, nll = text
    refused(ContinuousCache(3, 1.0, 0.1).nll, hidden[1:], targets, nll, match="one row for each word. Received: 39, 40")
