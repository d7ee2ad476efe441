import itertools

import numpy as np
from numpy.typing import ArrayLike

PER_BAND = 16_384  # multiply-adds per token for the calls of a further band, a round figure
_LEAST_DIM = 8  # smallest dimension of a tail
_CANDIDATES = 512  # number of ids that are tried as a cutoff, at equal ratios
_MOST = 3  # largest number of cutoffs


def best_cutoffs(
    counts: ArrayLike, dim: int, *, input_dim: int | None = None, factor: int = 4, coverage: float = 0.85
) -> tuple[int, ...]:
    """Returns the cutoffs with which an adaptive softmax needs the fewest multiply-adds.

    The first band covers at least `coverage` of the text, as the published models' do: with smaller dimensions for
    most words, fewer multiply-adds would cost perplexity. Subject to this, `cost_of_cutoffs` is minimized over up to
    three cutoffs, with tails of dimension 8 at least. The cutoffs are among 512 ids at equal ratios, which are all ids
    of a vocabulary of up to a hundred words and at most 3 % apart for a million words.

    Args:
        counts: Occurrences of each word in the order of the ids, (words,), such as `Vocabulary.counts`.
        dim: Dimension of the hidden states.
        input_dim: Dimension of the word vectors of the first band; `dim` by default.
        factor: Factor by which the dimension shrinks from one band to the next; 0 for no reduction.
        coverage: Least share of the text that the words of the first band have, from 0 to below 1.

    Returns:
        The cutoffs, a tuple of integers; `()` if a plain softmax is cheaper.

    Raises:
        ValueError: If the sum of `counts` is not positive, or `coverage` is out of range.

    Example:

    >>> counts = 10**9 // np.arange(1, 50_001)
    >>> cutoffs = best_cutoffs(counts, 256)
    >>> cost_of_cutoffs(counts, cutoffs, 256) < cost_of_cutoffs(counts, (), 256) / 4
    True
    """
    if not 0 <= coverage < 1:
        raise ValueError(f"`coverage` must be from 0 to below 1. Received: coverage={coverage}.")
    counts = np.asarray(counts, float)
    if not counts.sum() > 0:
        raise ValueError("`counts` must have a positive sum: pass the occurrences of words in a text.")
    size, dims = len(counts), _widths(input_dim or dim, factor, _MOST)
    dims = [dims[0], *itertools.takewhile(lambda width: width >= _LEAST_DIM, dims[1:])]
    covered = np.append(0.0, np.cumsum(counts))
    least = max(1, int(np.searchsorted(covered, coverage * covered[-1])))  # smallest first cutoff
    ids = np.append(least, np.geomspace(1, max(size - 1, 1), _CANDIDATES).round().astype(int))
    places = np.append(np.unique(ids[(ids >= least) & (ids < size)]), size)
    shares = covered[places] / covered[-1]
    choices = {(): cost_of_cutoffs(counts, (), dim, input_dim=input_dim, factor=factor)}
    for tails in range(1, min(_MOST, len(dims) - 1, len(places) - 1) + 1):
        # `rest` holds the costs of the bands that begin at each place, from the last band to the first tail
        rest, links = _tail_cost(shares, places, dim, dims[tails])[:, -1], []
        for tail in range(tails - 1, 0, -1):
            costs = _tail_cost(shares, places, dim, dims[tail]) + rest
            links.append(costs.argmin(axis=1))
            rest = costs.min(axis=1)
        chosen = [int(np.argmin(dims[0] * places + rest))]
        for link in reversed(links):
            chosen.append(int(link[chosen[-1]]))
        cutoffs = tuple(places[chosen].tolist())
        choices[cutoffs] = cost_of_cutoffs(counts, cutoffs, dim, input_dim=input_dim, factor=factor)
    return min(choices, key=choices.__getitem__)


def cost_of_cutoffs(
    counts: ArrayLike, cutoffs: tuple[int, ...], dim: int, *, input_dim: int | None = None, factor: int = 4
) -> float:
    """Returns the multiply-adds per token of the products of an adaptive softmax.

    The head multiplies every hidden state by the vectors of its words and of the tails. A tail projects the share of
    the hidden states whose targets it holds, and multiplies them by its vectors. Each tail counts as 16,384 more, a
    round figure for its further calls.

    Args:
        counts: Occurrences of each word in the order of the ids, (words,).
        cutoffs: First id of every band but the first.
        dim: Dimension of the hidden states.
        input_dim: Dimension of the word vectors of the first band; `dim` by default.
        factor: Factor by which the dimension shrinks from one band to the next; 0 for no reduction.
    """
    counts = np.asarray(counts, float)
    widths, places = _widths(input_dim or dim, factor, len(cutoffs)), np.asarray([*cutoffs, len(counts)])
    shares = np.append(0.0, np.cumsum(counts / counts.sum()))[places]
    tails = (_tail_cost(shares[[i - 1, i]], places[[i - 1, i]], dim, widths[i])[0, 1] for i in range(1, len(places)))
    return float(widths[0] * places[0] + sum(tails))


def _widths(dim, factor, tails):
    return [dim // factor**band if factor else dim for band in range(tails + 1)]


def _tail_cost(shares, places, dim, width):
    """Returns the costs of a tail from one place to another, an array (places, places); infinite for an empty tail."""
    sizes = places[None, :] - places[:, None]
    costs = (shares[None, :] - shares[:, None]) * width * (dim + sizes) + dim + PER_BAND
    return np.where(sizes > 0, costs, np.inf)
