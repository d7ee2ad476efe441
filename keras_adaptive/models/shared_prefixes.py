"""Losses of texts that begin alike, such as the hypotheses of a speech recognizer."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_finite
from keras_adaptive.special_words import PAD

STEPS = 8  # most tokens to read at a time: rows that agree in all tokens so far share one computation
ROUNDED_ROWS = 32  # numbers of rows are rounded up to multiples, since compilers compile for each


def shared_nll(function: Callable, body: Any, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Returns the losses of the targets of rows; `Prediction.nll_of_rows` describes them.

    Args:
        function: Function `(tokens, targets, parents, state) → (nll, state)`. Row i of the tokens continues row
            `parents[i]` of the state.
        body: The `Body`.
        rows: Pairs `(inputs, targets)` of ids, int32 arrays (tokens,).
    """
    length = max(len(targets) for _, targets in rows)
    parts = -(-length // STEPS)
    steps = -(-length // parts)  # equal parts, which need little padding and few compiled functions
    capacity = int(min(parts * steps, body.max_length or np.inf))
    state, losses = body.initial_state(1, capacity), [np.zeros(len(targets), "float32") for _, targets in rows]
    nodes = dict.fromkeys(range(len(rows)), 0)  # the row of the state that each row continues
    for start in range(0, length, steps):
        stop, parents, groups = min(start + steps, capacity), nodes, {}
        for row in parents:
            if len(losses[row]) > start:
                key = parents[row], *(ids[start:stop].tobytes() for ids in rows[row])
                groups.setdefault(key, []).append(row)
        nodes = {row: node for node, group in enumerate(groups.values()) for row in group}
        count = -(-len(groups) // ROUNDED_ROWS) * ROUNDED_ROWS
        pair, continued = np.full((2, count, stop - start), PAD, "int32"), np.zeros(count, "int32")
        for node, (row, *_) in enumerate(groups.values()):
            continued[node] = parents[row]
            for array, ids in zip(pair, rows[row]):
                array[node, : len(ids) - start] = ids[start:stop]
        nll, state = function(*pair, continued, state)
        nll = check_finite(ops.convert_to_numpy(nll))
        for row, node in nodes.items():
            losses[row][start:stop] = nll[node, : len(losses[row]) - start]
    return losses
