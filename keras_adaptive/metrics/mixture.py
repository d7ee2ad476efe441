"""Loss of a mixture of models, and the weights that minimize it."""

import numpy as np
from numpy.typing import ArrayLike

TOLERANCE = 1e-6  # the loss may exceed the smallest loss by this many nats
STEPS = 10_000  # largest number of steps


def mixture_nll(nll: ArrayLike, weights: ArrayLike) -> np.ndarray:
    """Returns the negative log-likelihoods of a weighted mean of probabilities.

    Args:
        nll: Negative log-likelihoods of the same tokens under each model in nats, `(models, …)`.
        weights: Weight of each model, `(models,)`. They must be at least 0 and add up to 1.

    Returns:
        A float64 array `(…)`.

    Raises:
        ValueError: If a weight is negative, or the weights do not add up to 1.

    Example:

    >>> mixture_nll(np.log([[2.0, 4.0], [2.0, 1.0]]), [0.5, 0.5])  # probabilities 1/2 and 5/8
    array([0.69314718, 0.47000363])
    """
    nll = np.asarray(nll, np.float64)
    weights = check_weights(weights, len(nll))
    least = nll.min(axis=0)
    return least - np.log(np.tensordot(weights, np.exp(least - nll), 1))


def mixture_weights(nll: ArrayLike) -> np.ndarray:
    """Returns the weights of the mixture of probabilities that has the smallest mean loss.

    Expectation maximization starts from equal weights and lowers the loss in every step. It ends when the loss is
    proved to be at most 1e-6 nats above the smallest loss, or after 10,000 steps.

    Args:
        nll: Negative log-likelihoods of the same tokens under each model in nats, `(models, tokens)`.

    Returns:
        The weights, a float64 array `(models,)`. They are at least 0 and add up to 1.

    Raises:
        ValueError: If `nll` is empty, has another number of axes, or holds a value that is not finite.

    Example:

    >>> mixture_weights([[0.1, 0.1, 5.0], [4.0, 4.0, 0.2]]).round(2)  # the first model is better on two tokens of three
    array([0.67, 0.33])
    """
    nll = np.asarray(nll, np.float64)
    if nll.ndim != 2 or not nll.size or not np.isfinite(nll).all():
        raise ValueError(
            f"`nll` must hold finite numbers (models, tokens) of at least one token. Received: shape {nll.shape}."
        )
    probabilities = np.exp(nll.min(axis=0) - nll)  # scaled per token, which does not change the weights
    weights = np.full(len(nll), 1 / len(nll))
    for _ in range(STEPS):
        gains = (probabilities / (weights @ probabilities)).mean(axis=1)
        if np.log(gains.max()) < TOLERANCE:  # by Jensen's inequality, this bounds the distance to the smallest loss
            break
        weights = weights * gains
    return weights / weights.sum()


def check_weights(weights: ArrayLike, members: int) -> np.ndarray:
    """Checks the weights of a mean and returns them as a float64 array."""
    weights = np.asarray(weights, np.float64)
    if weights.shape != (members,) or not (weights >= 0).all() or abs(weights.sum() - 1) > 1e-6:
        raise ValueError(
            f"`weights` must be {members} numbers, one for each model, that are at least 0 and add up to 1. "
            f"Received: weights={weights.tolist()}."
        )
    return weights
