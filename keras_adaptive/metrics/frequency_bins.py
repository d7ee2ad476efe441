from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike


def loss_by_frequency(
    nll: ArrayLike, targets: ArrayLike, counts: ArrayLike, edges: Iterable[int] | None = None
) -> list[dict]:
    """Returns the mean loss of the tokens in each range of word frequency.

    It shows whether a model gains on rare words or on frequent ones.

    Args:
        nll: Negative log-likelihood of each scored token in nats, of any shape. It must exclude padding and context.
        targets: Ids of these tokens, of the same shape.
        counts: Occurrences of each id in the training text, `(vocabulary,)`, such as
            `corpus.vocabulary.counts`.
        edges: Increasing counts at which a bin begins; the first is 0. Powers of ten by default.

    Returns:
        A list of dicts, from rare to frequent words: `low` and `high` (the bin holds counts in [low, high), and `high`
        is None for the last bin), `tokens` (their number) and `nll` (their mean loss). Empty bins are omitted.

    Raises:
        ValueError: If the shapes differ, a target has no count, or `edges` do not increase from 0.

    Reference:
        Baevski and Auli, Adaptive Input Representations for Neural Language Modeling, ICLR 2019,
        section 5.3.

    Example:

    >>> loss_by_frequency([1.0, 5.0, 3.0], [0, 1, 1], counts=[200, 7], edges=[0, 100])
    [{'low': 0, 'high': 100, 'tokens': 2, 'nll': 4.0}, {'low': 100, 'high': None, 'tokens': 1, 'nll': 1.0}]
    """
    nll, targets, counts = np.asarray(nll, np.float64), np.asarray(targets), np.asarray(counts)
    edges = _powers_of_ten(counts) if edges is None else list(edges)
    _validate(nll, targets, counts, edges)
    bins = np.searchsorted(edges, counts[targets.ravel()], side="right") - 1
    tokens = np.bincount(bins, minlength=len(edges))
    sums = np.bincount(bins, weights=nll.ravel(), minlength=len(edges))
    return [
        {"low": low, "high": high, "tokens": int(n), "nll": float(total / n)}
        for low, high, n, total in zip(edges, [*edges[1:], None], tokens, sums, strict=True)
        if n
    ]


def loss_by_bucket(nll: ArrayLike, targets: ArrayLike, counts: ArrayLike, buckets: int = 25) -> list[dict]:
    """Returns the mean loss in buckets of equal size, from the most frequent words to the rarest.

    Every bucket holds the same number of tokens, so that the mean over the buckets is the loss of the text. Tokens of
    equally frequent words keep the order of the text. The difference between two models in each bucket shows where one
    of them is better.

    Args:
        nll: Negative log-likelihood of each scored token in nats, of any shape. It must exclude padding and context.
        targets: Ids of these tokens, of the same shape.
        counts: Occurrences of each id in the training text, `(vocabulary,)`.
        buckets: Number of buckets. Their sizes differ by at most one token.

    Returns:
        A list of dicts: `most` and `least` (the counts of the most frequent and of the rarest word), `tokens` (their
        number) and `nll` (their mean loss). A text with fewer tokens than buckets gives one bucket per token.

    Raises:
        ValueError: If the shapes differ or a target has no count.

    Reference:
        Jozefowicz et al., Exploring the Limits of Language Modeling, 2016, section 5.8, figure 2.

    Example:

    >>> loss_by_bucket([1.0, 5.0, 3.0, 2.0], [0, 1, 1, 0], counts=[200, 7], buckets=2)
    [{'most': 200, 'least': 200, 'tokens': 2, 'nll': 1.5}, {'most': 7, 'least': 7, 'tokens': 2, 'nll': 4.0}]
    """
    nll, targets, counts = np.asarray(nll, np.float64), np.asarray(targets), np.asarray(counts)
    _validate(nll, targets, counts)
    frequencies = counts[targets.ravel()]
    order = np.argsort(-frequencies, kind="stable")
    parts = np.array_split(order, max(1, min(buckets, len(order))))
    return [
        {
            "most": int(frequencies[part[0]]),
            "least": int(frequencies[part[-1]]),
            "tokens": len(part),
            "nll": float(nll.ravel()[part].mean()),
        }
        for part in parts
        if len(part)
    ]


def _powers_of_ten(counts):
    return [0, *(10**i for i in range(len(str(counts.max(initial=0)))))]


def _validate(nll, targets, counts, edges=(0,)):
    if nll.shape != targets.shape:
        raise ValueError(f"`nll` and `targets` must have one shape. Received: shapes {nll.shape} and {targets.shape}.")
    if targets.size and not 0 <= targets.min() <= targets.max() < len(counts):
        raise ValueError(
            f"`targets` must be ids in [0, {len(counts)}), the length of `counts`. "
            f"Received: ids from {targets.min()} to {targets.max()}."
        )
    edges = list(edges)
    if edges[:1] != [0] or any(low >= high for low, high in zip(edges, edges[1:], strict=False)):
        raise ValueError(f"`edges` must begin with 0 and increase. Received: edges={edges}.")
