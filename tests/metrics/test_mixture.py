"""Mixtures of probabilities, compared with what one sees or can search for."""

import itertools

import numpy as np
import pytest

from keras_adaptive.metrics import mixture, mixture_nll, mixture_weights
from tests.support.refusals import refused

pytestmark = pytest.mark.once


def losses(members, tokens, seed=0):
    return np.random.default_rng(seed).exponential(3.0, (members, tokens))


def test_the_probabilities_are_averaged():
    nll = losses(3, 40).reshape(3, 5, 8)
    expected = -np.log(np.einsum("m,mij->ij", [0.5, 0.3, 0.2], np.exp(-nll)))
    np.testing.assert_allclose(mixture_nll(nll, [0.5, 0.3, 0.2]), expected, rtol=1e-12)
    np.testing.assert_allclose(mixture_nll(nll, [0, 1, 0]), nll[1], rtol=1e-12)


def test_losses_whose_probabilities_no_float_holds():
    assert mixture_nll([[2000.0], [2001.0]], [0.5, 0.5]) == pytest.approx(2000 - np.log((1 + np.exp(-1)) / 2))
    assert mixture_weights([[2000.0, 1e5], [2001.0, 1e5]]).argmax() == 0


def test_no_other_weights_have_a_smaller_loss():
    nll = losses(3, 200)
    nll[1] += 0.5
    found = mixture_nll(nll, mixture_weights(nll)).mean()
    grid = (np.array([one, two, 50 - one - two]) / 50 for one, two in itertools.product(range(51), repeat=2))
    searched = min(mixture_nll(nll, weights).mean() for weights in grid if weights[2] >= 0)
    assert found <= searched + mixture.TOLERANCE and searched - found < 1e-3


def test_two_members_that_never_agree():
    """Each of 3 and of 1 tokens belongs to a member: the weights are the shares of the tokens."""
    nll = np.array([[0.0, 0.0, 0.0, 50.0], [50.0, 50.0, 50.0, 0.0]])
    np.testing.assert_allclose(mixture_weights(nll), [0.75, 0.25], atol=1e-9)


def test_a_member_that_helps_nowhere_loses_its_weight():
    nll = losses(2, 50)
    weights = mixture_weights([*nll, nll.max(axis=0) + 1])
    assert weights[2] < 1e-3 and weights.sum() == pytest.approx(1)


def test_every_step_lowers_the_loss(monkeypatch):
    nll, means = losses(4, 100), []
    for steps in range(1, 30):
        monkeypatch.setattr(mixture, "STEPS", steps)
        means.append(mixture_nll(nll, mixture_weights(nll)).mean())
    assert means == sorted(means, reverse=True) and means[0] - means[-1] > 1e-3


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.4], [1.5, -0.5], [np.nan, 0.5], [[0.5, 0.5]]])
def test_weights_that_make_no_mean_are_refused(weights):
    message = "`weights` must be 2 numbers, one for each model, that are at least 0 and add up to 1.*Received: "
    refused(mixture_nll, losses(2, 3), weights, match=message)


@pytest.mark.parametrize("nll", [[1.0, 2.0], [[1.0, np.inf]], np.zeros((2, 0))])
def test_losses_that_have_no_best_weights_are_refused(nll):
    refused(mixture_weights, nll, match=r"`nll` must hold finite numbers \(models, tokens\)")
