"""The memory layout of a text in which shifts over time are cheapest, and products of such texts.

torch and TensorFlow arrange a text as (tokens, batch·dim), so that shifted tokens are a slice of contiguous memory. JAX
copies slices anyway and keeps (batch, tokens, dim), whose batch may be divided among devices. In both layouts time is
the axis before the last.
"""

import keras
import numpy as np
from keras import ops


def time_first():
    """Returns whether the backend arranges texts as (tokens, batch·dim)."""
    return keras.config.backend() != "jax"


def arranged(x):
    """Converts (batch, tokens, dim) to the layout of the backend."""
    if not time_first():
        return x
    return ops.reshape(ops.transpose(x, (1, 0, 2)), (ops.shape(x)[1], ops.shape(x)[0] * x.shape[-1]))


def as_rows(arranged, dim):
    """Reshapes arranged vectors to a matrix (rows, dim)."""
    return ops.reshape(arranged, (-1, dim))


def arranged_rows(rows, batch, tokens):
    """Reshapes a matrix (rows, dim) to the layout of the backend."""
    dim = rows.shape[-1]
    return ops.reshape(rows, (tokens, batch * dim) if time_first() else (batch, tokens, dim))


def restored(rows, batch):
    """Converts a matrix (rows, dim) to (batch, tokens, dim)."""
    if not time_first():
        return ops.reshape(rows, (batch, -1, rows.shape[-1]))
    return ops.transpose(ops.reshape(rows, (-1, batch, rows.shape[-1])), (1, 0, 2))


def band_matrix(weights, rows):
    """Returns the matrix (rows, rows + reach − 1) of weights[row − column + reach − 1], 0 where the index is invalid.

    The last column has distance 0 from the last row.
    """
    places = band_places(weights.shape[0], rows)
    if isinstance(weights, np.ndarray) and isinstance(places, np.ndarray):
        return ops.convert_to_tensor(np.pad(weights, 1)[places])
    return ops.take(ops.pad(ops.convert_to_tensor(weights), [[1, 1]]), places, axis=0)


def band_places(reach, rows):
    """Returns the indices (rows, rows + reach − 1) of a band matrix into the weights with a zero at both ends."""
    library = np if isinstance(rows, int) else ops
    distances = library.arange(rows)[:, None] - library.arange(rows + reach - 1)[None, :] + (reach - 1)
    return library.clip(distances, -1, reach) + 1


def joined(parts, axis):
    """Concatenates the parts, without a copy if there is only one."""
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=axis)


def padded(x, front, back):
    """Returns a tensor with zeros before and after its axis before the last."""
    if isinstance(front, int) and isinstance(back, int) and not front and not back:
        return x
    return ops.pad(x, [[0, 0]] * (len(x.shape) - 2) + [[front, back], [0, 0]])
