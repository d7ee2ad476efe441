"""Replaces a slice of a tensor by operations that every build of TensorFlow has."""

import keras
from keras import ops


def slice_update(tensor, new, position):
    """Returns a copy of `tensor` (batch, length, …) with `tensor[:, position : position + steps]` replaced by `new`.

    Under TensorFlow, the `keras.ops.slice_update` of Keras 3.15 is an operation of XLA, which compiles for each new
    shape and which a server of SavedModels may lack. Under torch, it takes several times as long as `index_copy`.
    """
    if keras.config.backend() == "torch":
        return tensor.index_copy(1, position + ops.arange(new.shape[1], dtype="int64"), new)
    if keras.config.backend() != "tensorflow":
        return ops.slice_update(tensor, [0, position, *[0] * (len(tensor.shape) - 2)], new)
    return ops.concatenate([tensor[:, :position], new, tensor[:, position + ops.shape(new)[1] :]], axis=1)
