"""Replacement of a slice of a tensor, with operations that every TensorFlow has."""

import keras
from keras import ops


def slice_update(tensor, new, position):
    """Returns a copy of `tensor` with `tensor[:, position : position + steps]` replaced by `new`.

    `keras.ops.slice_update` is an operation of XLA under TensorFlow: it compiles for each new shape, and a server of
    SavedModels need not have it.

    Args:
        tensor: Tensor (batch, length, …).
        new: Tensor (batch, steps, …).
        position: Int or int tensor.
    """
    if keras.config.backend() != "tensorflow":
        return ops.slice_update(tensor, [0, position, *[0] * (len(tensor.shape) - 2)], new)
    return ops.concatenate([tensor[:, :position], new, tensor[:, position + ops.shape(new)[1] :]], axis=1)
