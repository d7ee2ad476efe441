"""Mixtures of probabilities: their loss, and the best weights for a text."""

import numpy as np

TOLERANCE = 1e-6  # nats above the smallest loss
STEPS = 10_000  # at most


def mixture_nll(nll, weights):
    """Returns the negative log-likelihoods of a weighted mean of probabilities.

    Args:
        nll: Negative log-likelihoods of the same tokens by each member, in nats, `(members, …)`.
        weights: Weight of each member, `(members,)`. They are not negative and add up to 1.

    Returns:
        A float64 array `(…)`.

    Raises:
        ValueError: If the weights are not those of a mean.

    Example:

    >>> mixture_nll(np.log([[2.0, 4.0], [2.0, 1.0]]), [0.5, 0.5])  # probabilities 1/2 and 5/8
    array([0.69314718, 0.47000363])
    """
    nll = np.asarray(nll, np.float64)
    weights = check_weights(weights, len(nll))
    least = nll.min(axis=0)
    return least - np.log(np.tensordot(weights, np.exp(least - nll), 1))


def mixture_weights(nll):
    """Returns the weights of the mixture of probabilities that has the smallest mean loss.

    Expectation maximization starts from equal weights and lowers the loss in every step. It ends when the loss is
    proved to be at most 1e-6 nats above the smallest one, or after 10,000 steps.

    Args:
        nll: Negative log-likelihoods of the same tokens by each member, in nats, `(members, tokens)`.

    Returns:
        The weights, `(members,)` float64. They are not negative and add up to 1.

    Example:

    >>> mixture_weights([[0.1, 0.1, 5.0], [4.0, 4.0, 0.2]]).round(2)  # each is the better one of its tokens
    array([0.67, 0.33])
    """
    nll = np.asarray(nll, np.float64)
    if nll.ndim != 2 or not nll.size or not np.isfinite(nll).all():
        raise ValueError(f"`nll` must be finite numbers (members, tokens), one at least. Received: shape {nll.shape}.")
    probabilities = np.exp(nll.min(axis=0) - nll)  # up to a factor of each token, which changes no weight
    weights = np.full(len(nll), 1 / len(nll))
    for _ in range(STEPS):
        gains = (probabilities / (weights @ probabilities)).mean(axis=1)
        if np.log(gains.max()) < TOLERANCE:  # by Jensen's inequality, the loss exceeds the smallest one by no more
            break
        weights = weights * gains
    return weights / weights.sum()


def check_weights(weights, members):
    """Returns the weights of a mean as a float64 array, after checking them."""
    weights = np.asarray(weights, np.float64)
    if weights.shape != (members,) or not (weights >= 0).all() or abs(weights.sum() - 1) > 1e-6:
        raise ValueError(
            f"`weights` must be {members} numbers from 0 on that add up to 1, one for each member. "
            f"Received: {weights.tolist()}."
        )
    return weights
