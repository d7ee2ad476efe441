"""Which clicks of each user are for training, for validation and for the test."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

LEAVE_ONE_OUT = "leave_one_out"
_LEAST = 3  # number of clicks of a user who is tested under leave-one-out: a history, a target of each split


def split_starts(split: Any, times: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns the positions where the validation clicks and the test clicks of each user begin.

    Args:
        split: As in `item_sequences`.
        times: Times of the clicks, (clicks,), in ascending order for each user.
        offsets: Position of the first click of each user, and the number of clicks: (users + 1,).

    Returns:
        An int64 array (2, users). The training clicks of a user end where the validation clicks begin.

    Raises:
        ValueError: If `split` is of another form, or no click is left for training.
    """
    starts, stops = offsets[:-1], offsets[1:]
    if split is None:
        return np.stack([stops, stops])
    if isinstance(split, str) and split == LEAVE_ONE_OUT:
        tested = (stops - starts >= _LEAST).astype(np.int64)
        return np.stack([stops - 2 * tested, stops - tested])
    borders = _borders(split, times)
    later = [np.append(0, np.cumsum(times >= border)) for border in borders]  # clicks since a border, up to a position
    begins = np.stack([stops - (total[stops] - total[starts]) for total in later])
    if (begins[0] == starts).all():
        raise ValueError(f"`split` must leave clicks before {borders[0]} for training. Received: split={split!r}.")
    return begins


def _borders(split, times):
    """Returns the times at which validation and test begin."""
    if isinstance(split, str) or not isinstance(split, Sequence) or len(split) != 2:
        raise _wrong(split)
    if all(isinstance(share, float) and 0 < share < 1 for share in split):
        if sum(split) >= 1:
            raise ValueError(f"Shares in `split` must add up to less than 1. Received: split={split!r}.")
        ordered = np.sort(times)
        kept = np.round(len(times) * (1 - np.array([sum(split), split[1]]))).astype(int)
        return ordered[np.minimum(kept, len(times) - 1)]
    dates = times.dtype.kind == "M"
    if any(isinstance(border, Real) == dates for border in split):
        raise _wrong(split)
    try:
        borders = [np.datetime64(border) for border in split] if dates else list(split)
    except (TypeError, ValueError):
        raise _wrong(split) from None
    if not borders[0] <= borders[1]:
        raise ValueError(f"Validation must begin before the test. Received: split={split!r}.")
    return borders


def _wrong(split):
    return ValueError(
        f"`split` must be {LEAVE_ONE_OUT!r}, None, or a pair for validation and test: the times at which they begin, "
        f"as in the column of times, or their shares of the clicks, such as (0.1, 0.1). Received: split={split!r}."
    )
