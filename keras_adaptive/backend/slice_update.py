"""A stretch of a tensor replaced, with operations that every TensorFlow has."""

import keras
from keras import ops


def slice_update(tensor, new, position):
    """`tensor` (batch, length, …) with `new` (batch, steps, …) in place of what begins at `position` of its axis 1.

    `keras.ops.slice_update` is an operation of XLA under TensorFlow: it compiles for each new shape, and a server of
    SavedModels need not have it.
    """
    if keras.config.backend() != "tensorflow":
        return ops.slice_update(tensor, [0, position, *[0] * (len(tensor.shape) - 2)], new)
    return ops.concatenate([tensor[:, :position], new, tensor[:, position + ops.shape(new)[1] :]], axis=1)
