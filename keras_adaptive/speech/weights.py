"""Weights of the costs of hypotheses that give the fewest word errors."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from keras_adaptive.speech.nbest import utterance_of

ROUNDS = 100  # largest number of searches along all weights


def best_hypotheses(keys: Sequence[str], costs: ArrayLike, weights: ArrayLike) -> list[str]:
    """Returns the id of the hypothesis with the smallest weighted cost of each utterance; the first one of equal ones.

    Args:
        keys: Ids of the hypotheses, `UTTERANCE-N`.
        costs: Costs (kinds of costs, hypotheses), such as acoustic costs and the costs of models.
        weights: Weight of each kind of cost (kinds of costs,).

    Example:

    >>> best_hypotheses(["a-1", "a-2", "b-1"], [[5.0, 6.0, 9.0], [4.0, 2.0, 3.0]], [1.0, 0.8])
    ['a-2', 'b-1']
    """
    totals = np.asarray(weights, "float64") @ np.asarray(costs, "float64")
    return [keys[places[np.argmin(totals[places])]] for places in _lists(keys).values()]


def word_errors(words: str, reference: str) -> int:
    """Returns the least number of words to insert, delete or replace in one string to get another one.

    Example:

    >>> word_errors("well i am going", "well i'm going")
    2
    """
    hypothesis, spoken = words.split(), reference.split()
    row = list(range(len(spoken) + 1))
    for number, word in enumerate(hypothesis, 1):
        before, row = row, [number]
        for place, other in enumerate(spoken):
            row.append(min(before[place] + (word != other), before[place + 1] + 1, row[place] + 1))
    return row[-1]


def tune_weights(keys: Sequence[str], costs: ArrayLike, errors: Sequence[int]) -> np.ndarray:
    """Returns the weights of costs whose best hypotheses have the fewest word errors.

    The first weight is 1, since only ratios count. The others start from 1. The number of errors is a step function of
    one weight, and each search finds its smallest value exactly, at the middle of a step. Searches along the weights in
    turn end when none finds fewer errors. With two kinds of costs, the result is the best of all.

    Args:
        keys: Ids of the hypotheses, `UTTERANCE-N`.
        costs: Costs (kinds of costs, hypotheses), at least two kinds.
        errors: Number of word errors of each hypothesis.

    Returns:
        A float64 array (kinds of costs,) of weights that are at least 0.

    Raises:
        ValueError: If there are fewer than two kinds of costs, or their shape is not (kinds of costs, hypotheses).

    Reference:
        Och, Minimum Error Rate Training in Statistical Machine Translation, ACL 2003, section 5.

    Example:

    >>> tune_weights(["a-1", "a-2"], [[5.0, 6.0], [4.0, 2.0]], [1, 0])  # the second is the best one from 0.5 on
    array([1.  , 1.25])
    """
    costs, errors = np.asarray(costs, "float64"), np.asarray(errors)
    if costs.ndim != 2 or len(costs) < 2 or costs.shape[1] != len(keys) or len(errors) != len(keys):
        raise ValueError(
            "`costs` must have the shape (kinds of costs, hypotheses), with at least two kinds, and `keys` and "
            f"`errors` a value for each hypothesis. Received: shape {costs.shape}, {len(keys)} keys, {len(errors)} "
            "errors."
        )
    lists, weights = list(_lists(keys).values()), np.ones(len(costs))
    fewest = _errors_at(lists, weights @ costs, errors)
    for number in range(ROUNDS):
        before = fewest
        for kind in range(1, len(costs)):
            rest = weights @ costs - weights[kind] * costs[kind]
            value, found = _search(lists, rest, costs[kind], errors)
            if found < fewest or number == 0:  # the first search takes the middle of the widest step in any case
                weights[kind], fewest = value, found
        if fewest == before and number:
            break
    return weights


def _lists(keys):
    """Returns a dict from each utterance to the places of its hypotheses, an array."""
    lists: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        lists.setdefault(utterance_of(key), []).append(place)
    return {utterance: np.array(places) for utterance, places in lists.items()}


def _errors_at(lists, totals, errors):
    return sum(errors[places[np.argmin(totals[places])]] for places in lists)


def _search(lists, rest, slopes, errors):
    """Returns the weight w ≥ 0 of `rest` + w · `slopes` with the fewest errors, and their number."""
    changes, total = {}, 0
    for places in lists:
        total += _walk(rest[places], slopes[places], errors[places], changes)
    bounds = sorted(changes)
    steps = total + np.cumsum([0, *(changes[bound] for bound in bounds)])
    ends = [0.0, *bounds, 2 * bounds[-1] + 1 if bounds else 2.0]
    widths = np.diff(ends)
    fewest = steps[widths > 0].min()
    widest = max(np.flatnonzero((steps == fewest) & (widths > 0)), key=lambda place: widths[place])
    return (ends[widest] + ends[widest + 1]) / 2, fewest


def _walk(rest, slopes, errors, changes):
    """Adds the changes of the number of errors along the weight to `changes`, and returns the number at weight 0."""
    best = min(range(len(rest)), key=lambda place: (rest[place], slopes[place]))
    at_zero, weight = errors[best], 0.0
    while True:
        falling = np.flatnonzero(slopes < slopes[best])  # only these become better than the best one
        if not len(falling):
            return at_zero
        meets = (rest[falling] - rest[best]) / (slopes[best] - slopes[falling])
        weight = max(weight, meets.min())
        after = falling[meets <= weight]
        new = after[np.argmin(slopes[after])]
        changes[weight] = changes.get(weight, 0) + errors[new] - errors[best]
        best = new
