import itertools
from typing import NamedTuple, Self

import numpy as np

from keras_adaptive.memory.mixing import SHARES, mixed

ROWS = 256  # queries at a time
FLATNESS = 2.0 ** np.arange(-2, 6)  # candidates, in units of 1 / the mean square of the norm of a hidden state


class ContinuousCache(NamedTuple):
    """Continuous cache: words that followed similar hidden states not long ago are more probable.

    The probability of a word is (1 − share) · p of the model + share · p of the cache. That of the cache is the sum of
    exp(flatness · h·hᵢ) over the last `size` hidden states hᵢ that the word followed, divided by the sum over all of
    them. Before the second token of a text the cache is empty, and the probability is that of the model.

    Args:
        size: Number of hidden states that are kept.
        flatness: Factor of the products of hidden states; 0 for the frequency of the words in the cache.
        share: Weight of the cache, from 0 to 1.

    Reference:
        Grave, Joulin and Usunier, Improving Neural Language Models with a Continuous Cache, ICLR 2017, section 3.

    Example:

    >>> hidden, targets = np.ones((4, 8), "float32"), np.array([5, 6, 5, 5])
    >>> cache = ContinuousCache(size=2, flatness=1.0, share=0.5)
    >>> np.exp(-cache.nll(hidden, targets, nll=np.log([10.0, 10.0, 10.0, 10.0]))).round(2).tolist()
    [0.1, 0.05, 0.3, 0.3]
    """

    size: int
    flatness: float
    share: float

    def nll(self, hidden: np.ndarray, targets: np.ndarray, nll: np.ndarray) -> np.ndarray:
        """Returns the negative log-likelihoods of the words of a text, in nats, float64 (tokens,).

        Args:
            hidden: Hidden states before each word, in the order of the text (tokens, dim).
            targets: Ids of the words (tokens,).
            nll: Negative log-likelihoods by the model (tokens,).

        Raises:
            ValueError: If a number is out of range, or the lengths differ.
        """
        self.check()
        if not len(hidden) == len(targets) == len(nll):
            raise ValueError(
                "`hidden`, `targets` and `nll` must have one row for each word. "
                f"Received: {len(hidden)}, {len(targets)} and {len(nll)} rows."
            )
        (of_cache,) = _log_probs(hidden, targets, self.size, [self.flatness])
        return mixed(nll, of_cache, self.share)

    @classmethod
    def tuned(cls, size: int, hidden: np.ndarray, targets: np.ndarray, nll: np.ndarray) -> Self:
        """Returns the cache of a size whose flatness and share, of a grid, give a text the lowest loss.

        Arguments are those of `nll`. The flatness of the grid is relative to the mean square of the norms.
        """
        cls(size, 0.0, 0.0).check()
        scale = float(np.mean(np.sum(np.square(hidden, dtype="float64"), axis=1))) or 1.0
        candidates = [float(factor) / scale for factor in FLATNESS]
        of_caches = _log_probs(hidden, targets, size, candidates)
        losses = {
            cls(size, flatness, share): mixed(nll, of_cache, share).mean()
            for (flatness, of_cache), share in itertools.product(zip(candidates, of_caches), SHARES)
        }
        return min(losses, key=losses.__getitem__)

    def check(self) -> None:
        """Raises a `ValueError` if a number is out of range."""
        if self.size < 1 or not 0 <= self.flatness < np.inf or not 0 <= self.share <= 1:
            raise ValueError(
                "A cache needs a `size` of at least 1, a `flatness` of at least 0 and a `share` from 0 to 1. "
                f"Received: size={self.size}, flatness={self.flatness}, share={self.share}."
            )


def _log_probs(hidden, targets, size, candidates):
    """Returns log p of the targets by the cache for each flatness, (candidates, tokens); NaN where it is empty."""
    hidden, targets = np.asarray(hidden, "float32"), np.asarray(targets)
    result = np.full((len(candidates), len(targets)), np.nan)
    for start in range(0, len(targets), ROWS):
        first, stop = max(start - size, 0), min(start + ROWS, len(targets))
        queries, keys = np.arange(start, stop)[:, None], np.arange(first, stop)
        kept = (keys < queries) & (keys >= queries - size)
        products = hidden[start:stop] @ hidden[first:stop].T
        same = kept & (targets[start:stop, None] == targets[first:stop])
        some = kept.any(axis=1)
        for number, flatness in enumerate(candidates):
            scores = np.where(kept, flatness * products, -np.inf)[some]
            exps = np.exp(scores - scores.max(axis=1, keepdims=True))
            with np.errstate(divide="ignore"):  # a word that the cache does not hold
                of_targets = np.log(np.sum(exps, axis=1, where=same[some]))
            result[number, start:stop][some] = of_targets - np.log(exps.sum(axis=1))
    return result
