"""Selection from long rows: the largest entries and random draws, block by block, and single columns.

Sorting and summing rows of a hundred thousand entries costs more than the matrix product that computed them.
"""

import math

from keras import ops

BLOCK, SMALLEST_BLOCK = 512, 64
BELOW_ONE = 1 - 2.0**-22  # a float32 product with it is below the other factor
LEAST_TEMPERATURE = 1e-30  # below it quotients would overflow


def top_k(x, k):
    """Returns the k largest entries of every row.

    The entries are in the k blocks with the largest maxima.

    Args:
        x: Float tensor (…, columns) of finite entries.
        k: Number of entries, at most the number of columns.

    Returns:
        `(values, columns)`, (…, k) each, in descending order. The order of equal entries is undefined.
    """
    size = _block_size(x.shape[-1])
    if x.shape[-1] <= 2 * k * size:
        values, columns = ops.top_k(x, k)
        return values, ops.cast(columns, "int32")
    blocks = _in_blocks(x, size, -float("inf"))
    _, best = ops.top_k(ops.max(blocks, axis=-1), k)
    candidates = ops.take_along_axis(blocks, best[..., None], axis=-2)  # (…, k, size)
    values, places = ops.top_k(ops.reshape(candidates, (*ops.shape(x)[:-1], k * size)), k)
    best = ops.take_along_axis(best, places // size, axis=-1)
    return values, ops.cast(best * size + places % size, "int32")


def draw(logits, uniform):
    """Draws one column per row from softmax(logits), by the cumulative distribution.

    Args:
        logits: Float tensor (…, columns).
        uniform: Float tensor (…) in [0, 1), which determines the draws.

    Returns:
        (…) int32 columns.
    """
    uniform = ops.cast(uniform, logits.dtype)
    odds = ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))
    size = _block_size(odds.shape[-1])
    blocks = _in_blocks(odds, size, 0.0)
    sums = ops.sum(blocks, axis=-1)
    block, rest = _find(sums, ops.minimum(uniform, BELOW_ONE))
    inside = ops.take_along_axis(blocks, block[..., None, None], axis=-2)[..., 0, :]  # (…, size)
    column, _ = _find(inside, ops.minimum(rest, BELOW_ONE))
    return ops.cast(ops.minimum(block * size + column, logits.shape[-1] - 1), "int32")


def tempered(log_probs, temperature):
    """Returns log-probabilities divided by a temperature, a number or a scalar tensor."""
    return log_probs / ops.maximum(temperature, LEAST_TEMPERATURE)


def draw_best(log_probs, ids, uniform, temperature, top_k, top_p=None):
    """Draws one word per row from the most probable words.

    Args:
        log_probs: Float tensor (…, words) in descending order.
        ids: Int32 tensor (…, words), the words.
        uniform: Float tensor (…) in [0, 1), which determines the draws.
        temperature: A number or a scalar tensor.
        top_k: A number or a scalar tensor, the number of words to draw among.
        top_p: A number or a scalar tensor. The draw is then among the fewest words whose probabilities add up to it.
            Optional.

    Returns:
        (…) int32 ids.
    """
    odds, places = tempered(log_probs, temperature), ops.arange(log_probs.shape[-1])
    odds = ops.where(places < top_k, odds, -float("inf"))
    if top_p is not None:
        probabilities = ops.softmax(odds)
        before = ops.cumsum(probabilities, axis=-1) - probabilities
        odds = ops.where((before < top_p) | (places == 0), odds, -float("inf"))
    return ops.take_along_axis(ids, draw(odds, uniform)[..., None], axis=-1)[..., 0]


def pick(values, columns):
    """Returns `values[row, columns[row]]` of every row: (rows, columns) and (rows,) to (rows,)."""
    return ops.take_along_axis(values, columns[:, None], axis=-1)[:, 0]


def count_above(values, threshold, excluded=None):
    """Counts the entries of each row above a threshold.

    Args:
        values: Float tensor (rows, columns).
        threshold: Float tensor (rows,).
        excluded: Int tensor (rows,), a column of each row that does not count. Optional.

    Returns:
        (rows,) int32.
    """
    above = values > threshold[:, None]
    if excluded is not None:
        above = above & (ops.arange(values.shape[-1])[None, :] != excluded[:, None])
    return ops.sum(ops.cast(above, "int32"), axis=-1)


def _find(odds, uniform):
    """Returns the column where the cumulative odds exceed `uniform` times their sum, and the fraction within it."""
    cumulative = ops.cumsum(odds, axis=-1)
    goal = uniform[..., None] * cumulative[..., -1:]
    column = ops.sum(ops.cast(cumulative <= goal, "int32"), axis=-1, keepdims=True)
    column = ops.minimum(column, odds.shape[-1] - 1)  # a parallel sum may decrease in its last digit
    width, end = (ops.take_along_axis(values, column, axis=-1) for values in (odds, cumulative))
    return column[..., 0], ops.maximum((goal - (end - width)) / width, 0.0)[..., 0]


def _block_size(columns):
    """Returns the size of the blocks, a divisor of the columns if possible, which saves a padded copy."""
    divisor = math.gcd(columns, BLOCK)
    return divisor if divisor >= SMALLEST_BLOCK else BLOCK


def _in_blocks(x, size, fill):
    """Reshapes (…, columns) to (…, blocks, size) and pads the last block."""
    missing = -x.shape[-1] % size
    if missing:
        x = ops.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[0, missing]], constant_values=fill)
    return ops.reshape(x, (*ops.shape(x)[:-1], x.shape[-1] // size, size))
