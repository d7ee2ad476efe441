"""Selection from long rows: the largest entries and random draws, block by block, and single columns.

Sorting and summing rows of a hundred thousand entries costs more than the matrix product that computed them.
"""

import math

import keras
from keras import ops

from keras_adaptive.backend.compiled import compiled_part
from keras_adaptive.backend.ordering import computed_once

BLOCK, SMALLEST_BLOCK = 512, 64
LEAST_TEMPERATURE = 1e-30  # below it quotients would overflow
BELOW_ONE = 1 - 2.0**-22  # a float32 product with it is below the other factor


def top_k(x, k):
    """Returns the k largest entries of every row of `x` (…, columns): `(values, columns)`, (…, k) each, descending.

    Equal entries are in the order of their columns, and NaN counts as minus infinity. The entries are in the k blocks
    with the largest maxima.
    """
    numbers = ops.where(ops.isnan(x), -float("inf"), x)
    size = _block_size(x.shape[-1])
    if x.shape[-1] <= 2 * k * size:
        columns = best(numbers, k)
    else:
        blocks = _in_blocks(numbers, size, -float("inf"))
        chosen = ops.sort(best(ops.max(blocks, axis=-1), k))  # in the order of their columns
        candidates = ops.take_along_axis(blocks, chosen[..., None], axis=-2)  # (…, k, size)
        places = best(ops.reshape(candidates, (*ops.shape(x)[:-1], k * size)), k)
        columns = ops.take_along_axis(chosen, places // size, axis=-1) * size + places % size
    return ops.take_along_axis(x, columns, axis=-1), columns


def best(x, k):
    """Returns the columns of the k largest numbers of every row, (…, k) int32; of equal ones the first columns."""
    if keras.config.backend() != "torch":
        return ops.cast(ops.top_k(x, k)[1], "int32")
    import torch

    if k == 1:
        return x.argmax(dim=-1, keepdim=True).int()
    bits = x.float().view(torch.int32)
    keys = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long() << 32  # in the order of the numbers
    return torch.topk(keys - torch.arange(x.shape[-1], device=x.device), k).indices.int()  # all keys differ


def draw(logits, uniform):
    """Draws one column per row from softmax(logits) (…, columns), by numbers `uniform` (…) in [0, 1).

    The result is (…) int32, with −1 for a row without a distribution, as a logit is NaN or the largest is infinite.
    """
    return _draw(logits, uniform)


def _columns_drawn(logits, uniform):
    uniform = ops.cast(uniform, logits.dtype)
    odds = ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))
    size = _block_size(odds.shape[-1])
    blocks = _in_blocks(odds, size, 0.0)
    sums = ops.sum(blocks, axis=-1)
    block, rest = _find(sums, ops.minimum(uniform, BELOW_ONE))
    inside = ops.take_along_axis(blocks, block[..., None, None], axis=-2)[..., 0, :]  # (…, size)
    column, _ = _find(inside, ops.minimum(rest, BELOW_ONE))
    column = ops.minimum(block * size + column, logits.shape[-1] - 1)
    return ops.cast(ops.where(ops.isnan(ops.sum(sums, axis=-1)), -1, column), "int32")


_draw = compiled_part(_columns_drawn)


def tempered(log_probs, temperature):
    """Returns log-probabilities divided by a temperature, a number or a scalar tensor."""
    return log_probs / ops.maximum(temperature, LEAST_TEMPERATURE)


def draw_best(log_probs, ids, uniform, temperature, top_k, top_p=None):
    """Draws one of the most probable words per row, (…) int32; −1 for a row without a distribution.

    Args:
        log_probs, ids: (…, words) each, in descending order of the log-probabilities.
        uniform: Float tensor (…) in [0, 1), which determines the draws.
        temperature, top_k: Numbers or scalar tensors. The draw is among the first `top_k` words.
        top_p: A number or a scalar tensor. The draw is then among the fewest words whose probabilities add up to it.
            Optional.
    """
    odds, places = tempered(log_probs, temperature), ops.arange(log_probs.shape[-1])
    odds = ops.where(places < top_k, odds, -float("inf"))
    if top_p is not None:
        probabilities = ops.softmax(odds)
        before = ops.cumsum(probabilities, axis=-1) - probabilities
        odds = ops.where((before < top_p) | (places == 0), odds, -float("inf"))
    drawn = draw(odds, uniform)
    return ops.where(drawn < 0, -1, ops.take_along_axis(ids, ops.maximum(drawn, 0)[..., None], axis=-1)[..., 0])


def pick(values, columns):
    """Returns `values[row, columns[row]]` of every row: (rows, columns) and (rows,) to (rows,)."""
    return ops.take_along_axis(values, columns[:, None], axis=-1)[:, 0]


def count_before(values, threshold, columns, excluded=None):
    """Counts the entries of each row of `values` (rows, columns) that `top_k` returns before an entry: (rows,) int32.

    `threshold` (rows,) is the value of the entry, and `columns` (rows,) its column: an equal entry counts if its column
    is smaller. A column outside of the row counts all equal entries or, if it is negative, none. The `excluded` columns
    (rows, …), all different or outside of the row, do not count.
    """
    values = values if excluded is None else computed_once(values)
    count = _number_before(values, ops.arange(values.shape[-1])[None, :], threshold, columns)
    if excluded is None:
        return count
    inside = (excluded >= 0) & (excluded < values.shape[-1])
    picked = ops.take_along_axis(values, ops.where(inside, excluded, 0), axis=-1)
    return count - _number_before(picked, excluded, threshold, columns, inside)


def _number_before(values, places, threshold, columns, counted=True):
    """Returns how many of the `counted` values at the `places` of a row come before the threshold at its column."""
    columns, threshold = columns[:, None], threshold[:, None]
    before = (values > threshold) & (places != columns) | (values >= threshold) & (places < columns)
    before = before & counted
    if keras.config.backend() == "torch":  # sums without an array of numbers
        return ops.cast(before.sum(dim=-1), "int32")
    return ops.sum(ops.cast(before, "int32"), axis=-1)


def score(log_probs, targets, excluded=None):
    """Returns `[log_probs, ranks]` of targets (rows,) by the log-probabilities (rows, words), −1 for no target.

    Ranks leave out the `excluded` ids (rows, …), which are all different or no word.
    """
    log_probs, known = computed_once(log_probs), targets >= 0
    picked = pick(log_probs, ops.where(known, targets, 0))
    ranks = 1 + count_before(log_probs, picked, targets, excluded)
    return [ops.where(known, picked, 0.0), ops.where(known, ranks, 1)]


def alternatives(log_probs, targets, k):
    """Returns the list of `Output.alternatives` of log-probabilities (rows, words) and targets (rows,), −1 for none."""
    log_probs = computed_once(log_probs)
    entropies = -ops.sum(ops.exp(log_probs) * log_probs, axis=-1)
    return [*score(log_probs, targets), entropies, *top_k(log_probs, k)]


def distinct(ids, targets):
    """Returns every id of a row (rows, …) once, and −1 in place of its repetitions and of the row's target (rows,)."""
    ids = ops.sort(ids, axis=-1)
    first = ops.pad(ids[:, 1:] != ids[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    other = ops.not_equal(ids, targets[:, None])  # of `!=`, TensorFlow may not know the rank
    return ops.where(first & other, ids, -1)


def without_ids(values, ids, excluded, k):
    """Returns the first k of `top_k`'s entries (rows, n) whose ids are not `excluded` (rows, …), the others as −∞.

    If n is k more than the number of excluded ids, or all entries, these are the k largest entries that remain.
    """
    values = ops.where(ops.any(ids[..., None] == excluded[:, None, :], axis=-1), -float("inf"), values)
    values, places = top_k(values, k)
    return values, ops.take_along_axis(ids, places, axis=-1)


def without_columns(values, excluded):
    """Returns the rows `values` (rows, columns) with −∞ in the columns `excluded` (rows, …), −1 for none."""
    columns, rows = values.shape[-1], ops.arange(ops.shape(excluded)[0], dtype="int32")[:, None]
    places = ops.stack([ops.broadcast_to(rows, ops.shape(excluded)), excluded % (columns + 1)], axis=-1)
    places = ops.reshape(places, (-1, 2))
    values = ops.pad(values, [[0, 0], [0, 1]])  # the column of −1
    return ops.scatter_update(values, places, ops.full(ops.shape(places)[:1], -float("inf"), values.dtype))[:, :-1]


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
