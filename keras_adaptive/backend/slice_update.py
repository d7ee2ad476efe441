"""Replaces a slice of a tensor by operations that every build of TensorFlow has."""

import keras
from keras import ops


def slice_update(tensor, new, position, axis=1):
    """Returns a copy of `tensor` with its part from `position` along `axis` replaced by `new`.

    Under TensorFlow, the `keras.ops.slice_update` of Keras 3.15 is an operation of XLA, which compiles for each new
    shape and which a server of SavedModels may lack. Under torch, it takes several times as long as `index_copy`.
    """
    if keras.config.backend() == "torch":
        return tensor.index_copy(axis, position + ops.arange(new.shape[axis], dtype="int64"), new)
    if keras.config.backend() != "tensorflow":
        start = [0] * len(tensor.shape)
        start[axis] = position
        return ops.slice_update(tensor, start, new)
    before, end = (slice(None),) * axis, position + ops.shape(new)[axis]
    return ops.concatenate([tensor[(*before, slice(position))], new, tensor[(*before, slice(end, None))]], axis=axis)
