"""The best of many classes, whose logits are computed in chunks of rows and of columns, never all at once.

A first pass over the table computes the normalizer and the largest logit of every block of columns. The k best entries
of a row are in the k blocks with the largest maxima, whose logits a second pass computes again.
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import ops

from keras_adaptive.backend.slice_update import slice_update
from keras_adaptive.ops.active_rows import one_by_one, update_rows
from keras_adaptive.ops.long_rows import best, top_k
from keras_adaptive.ops.quantized_matrix import QuantizedMatrix
from keras_adaptive.typing import Tensor

BLOCK = 64
ROWS = 64  # least number of rows of a chunk of the logits of a long table, if there are enough rows
LOGITS = ROWS * 2**16  # number of logits of a chunk, which take 16 MB


class Classes(NamedTuple):
    """Classes with vectors of a table, and what is computed from them.

    Attributes:
        size: Number of classes.
        logits: Function `(x, start, count) → (rows, count)` float32 for the classes from `start` on, an integer or a
            scalar tensor.
        logits_at: Function `(x, columns) → (rows, …)` float32 for `columns` (rows, …) of classes.
        allowed: Bool tensor (size,): which classes may be among the best. Optional.
    """

    size: int
    logits: Callable[..., Tensor]
    logits_at: Callable[..., Tensor]
    allowed: Tensor | None = None


def rows_at_once(rows, size, few=False):
    """Returns the number of rows of a chunk of the logits of `size` classes.

    The number of all rows may be unknown. If `few` of them may be active, chunks are smaller where the last one is
    padded, which costs as much as a full one.
    """
    most = max(ROWS, LOGITS // size)
    if few and keras.config.backend() != "torch":
        most //= 4
    return min(rows, most) if rows else most


def best_classes(classes, x, k, extra=None):
    """Returns the k best classes of every row by a softmax over all classes and columns of other logits.

    Args:
        classes: `Classes`.
        x: (rows, dim), `rows_at_once` at most.
        k: Number of classes, at most `size`.
        extra: (rows, columns) float32 logits. Optional.

    Returns:
        The list `[log_probs, columns]` of arrays (rows, k), in descending order, and the log-probabilities of the extra
        columns if there are any. Classes that are not allowed have the log-probability −∞.
    """
    rows = x.shape[0] or rows_at_once(None, classes.size)
    if rows * classes.size <= LOGITS or classes.size <= 2 * k * BLOCK:
        logits = classes.logits(x, 0, classes.size)
        log_probs = ops.log_softmax(logits if extra is None else ops.concatenate([logits, extra], axis=-1))
        words = log_probs[:, : classes.size]
        return [*top_k(_allowed(classes, words, 0), k), *([] if extra is None else [log_probs[:, classes.size :]])]
    maxima, total = _first_pass(classes, x, LOGITS // rows // BLOCK * BLOCK, extra)
    blocks = ops.sort(best(ops.where(ops.isnan(maxima), -float("inf"), maxima), k))

    def second_pass(x, blocks):
        columns = ops.reshape(blocks[..., None] * BLOCK + ops.arange(BLOCK, dtype="int32"), (-1, k * BLOCK))
        inside = columns < classes.size
        columns = ops.where(inside, columns, 0)
        inside = inside if classes.allowed is None else inside & ops.take(classes.allowed, columns)
        logits, places = top_k(ops.where(inside, classes.logits_at(x, columns), -float("inf")), k)
        return [logits, ops.take_along_axis(columns, places, axis=-1)]

    outputs = [ops.zeros(ops.shape(blocks)), ops.zeros(ops.shape(blocks), "int32")]
    at_once = max(1, LOGITS // (k * BLOCK * x.shape[-1]))
    logits, columns = update_rows(second_pass, blocks[:, 0] >= 0, [x, blocks], outputs, chunk_rows=at_once)
    return [logits - total, columns, *([] if extra is None else [extra - total])]


def _first_pass(classes, x, width, extra):
    """Returns the largest logit of every block of allowed columns (rows, blocks), and the normalizer (rows, 1)."""

    def chunk(start, count, total):
        logits = classes.logits(x, start, count)
        blocks, missing = _allowed(classes, logits, start), -count % BLOCK
        if missing:
            blocks = ops.pad(blocks, [[0, 0], [0, missing]], constant_values=-float("inf"))
        maxima = ops.max(ops.reshape(blocks, (-1, (count + missing) // BLOCK, BLOCK)), axis=-1)
        return maxima, ops.logaddexp(total, _log_total(logits))

    def step(number, maxima, total):
        new, total = chunk(number * width, width, total)
        updated = slice_update(maxima, new, number * (width // BLOCK))
        return number + 1, ops.reshape(updated, ops.shape(maxima)), total  # whose shape TensorFlow does not know

    chunks, rows = classes.size // width, ops.shape(x)[0]
    total = ops.full((rows, 1), -float("inf")) if extra is None else _log_total(extra)
    state = 0, ops.zeros((rows, chunks * width // BLOCK)), total
    _, maxima, total = one_by_one(lambda number, *_: number < chunks, step, state)
    if rest := classes.size - chunks * width:
        new, total = chunk(chunks * width, rest, total)
        maxima = ops.concatenate([maxima, new], axis=1)
    return maxima, total


def _log_total(logits):
    """Returns log Σ exp(logit) of every row, (rows, 1)."""
    if keras.config.backend() != "tensorflow":
        return ops.logsumexp(logits, axis=-1, keepdims=True)
    import tensorflow as tf

    largest = ops.max(tf.nn.softmax(logits), axis=-1, keepdims=True)  # takes less time than exponentials and their sum
    return ops.max(logits, axis=-1, keepdims=True) - ops.log(largest)


def _allowed(classes, logits, start):
    """Returns the logits, −∞ for classes that are not allowed."""
    if classes.allowed is None:
        return logits
    return ops.where(columns_of(classes.allowed, start, logits.shape[-1]), logits, -float("inf"))


def columns_of(array, start, count):
    """Returns `array[start : start + count]`, of a `QuantizedMatrix` too; the start may be a tensor."""
    if isinstance(array, QuantizedMatrix):
        return array.of_rows(lambda tensor: columns_of(tensor, start, count))
    if isinstance(start, int) or keras.config.backend() == "torch":
        return array[start : start + count]
    array = ops.convert_to_tensor(array)
    return ops.slice(array, [start, *[0] * (len(array.shape) - 1)], [count, *array.shape[1:]])
