"""Numbers of rows per chunk for products whose logits exist for one chunk at a time."""

import keras
from keras import ops

from keras_adaptive.typing import Tensor

CHUNK_BYTES = {"tensorflow": 40 * 2**20, "jax": 60 * 2**20, "torch": 64 * 2**20}  # measured on two CPU cores
MIN_CHUNK_ROWS, MAX_CHUNK_ROWS = 16, 1024
TAIL_CHUNKS = 32  # a tail has at least this number of chunks per batch, since few of the rows belong to the tail


def default_chunk_rows(rows: int | None, columns: int, dim: int = 0) -> int:
    """Returns the number of rows whose float32 logits take the `CHUNK_BYTES` of the backend, for chunks of equal size.

    TensorFlow holds more arrays of that size at a time than the other backends. A chunk has at least `MIN_CHUNK_ROWS`,
    since smaller matrix products are slow, and at most `MAX_CHUNK_ROWS`. Except under torch, each chunk computes a
    gradient (columns, dim) that a separate pass adds to a sum. Such a chunk has at least dim / 2 rows: otherwise that
    pass would take too much of the time, and this array needs more memory than the logits. Finally the batch is divided
    into equal chunks of a multiple of 8 rows, because with static shapes a partial last chunk costs as much as a full
    one.

    Args:
        rows: Number of rows of the batch, `None` if it is unknown.
        columns: Number of logits per row.
        dim: Dimension of the vectors, 0 without gradients.
    """
    backend = keras.config.backend()
    least = MIN_CHUNK_ROWS if backend == "torch" else max(MIN_CHUNK_ROWS, dim // 2)
    most = min(max(CHUNK_BYTES[backend] // (4 * columns), least), MAX_CHUNK_ROWS)
    if rows:
        most = -(-rows // -(-rows // most))
    return -(-most // 8) * 8


def tail_chunk_rows(x: Tensor, columns: int) -> int | Tensor:
    """Returns the number of rows per chunk of a tail, a tensor if the number of rows is known only at run time.

    The last chunk of a tail is padded, except under torch, so that large chunks would mostly consist of padding.
    """
    most, rows = default_chunk_rows(None, columns), ops.shape(x)[0]
    if keras.config.backend() == "torch":
        return most
    share = -(-rows // TAIL_CHUNKS)
    if isinstance(rows, int):
        return min(most, max(share, MIN_CHUNK_ROWS))
    return ops.minimum(most, ops.maximum(share, MIN_CHUNK_ROWS))
