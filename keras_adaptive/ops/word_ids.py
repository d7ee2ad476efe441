"""Ids of words as int32, in which every id outside the vocabulary stays outside, and checks of ids."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.wide_ids import WIDE
from keras_adaptive.typing import Tensor

EXACT = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24}  # largest n such that a dtype holds all of 0, …, n


def word_ids(ids: Any, vocabulary_size: int) -> Tensor:
    """Returns ids as int32, −1 for every id outside the vocabulary.

    A plain cast to int32 would read 2³² + 5 as 5, and NaN as any id. Arrays are converted on the host, because JAX
    narrows them when it makes a tensor of them, and give arrays. A number that is not whole is outside, and so is NaN.
    A symbolic tensor is returned unchanged. A dtype that cannot hold all ids of the vocabulary is refused.
    """
    if isinstance(ids, keras.KerasTensor):
        return ids
    on_host = not ops.is_tensor(ids)
    ids = np.asarray(ids) if on_host else ids
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if vocabulary_size - 1 > EXACT.get(dtype, vocabulary_size):
        raise ValueError(
            f"Ids of {vocabulary_size:,} words must be integers or numbers of a wider dtype, because {dtype} holds "
            f"whole numbers up to {EXACT[dtype]:,} only. Received: dtype={dtype}."
        )
    if on_host:
        inside = (ids >= 0) & (ids < vocabulary_size)
        inside = inside & (ids == np.floor(ids)) if "float" in dtype else inside
        return np.where(inside, ids, -1).astype("int32")
    if "float" in dtype:
        ids = ops.where(ids == ops.floor(ids), ids, -1)
    else:
        ids = ops.cast(ids, "int64" if dtype in WIDE else "int32")  # large unsigned numbers become negative
    return ops.cast(ops.where((ids >= 0) & (ids < vocabulary_size), ids, -1), "int32")


def check_ids(ids, vocabulary_size, name="tokens"):
    """Returns `ids`, of any shape, as an int32 array after checking on the host that all are in the vocabulary.

    The message of the ValueError contains the `name` of the argument, the first id outside of it, and its place.
    """
    ids = np.asarray(ids)
    if not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"`{name}` must be integers. Received: dtype={ids.dtype}.")
    outside = (ids < 0) | (ids >= vocabulary_size)
    if outside.any():
        place = tuple(int(axis[0]) for axis in np.nonzero(outside))
        raise ValueError(
            f"`{name}` must be ids from 0 to {vocabulary_size - 1}: encode the text with the vocabulary of the model. "
            f"Received: the id {ids[place]} at {place}."
        )
    return ids.astype("int32", copy=False)


def count_outside(ids, vocabulary_size, weights=None):
    """Returns the number of ids outside the vocabulary whose weight is not 0, a float32 scalar, on the device."""
    outside = ops.convert_to_tensor(word_ids(ids, vocabulary_size)) < 0
    if weights is not None:
        outside = outside & (ops.convert_to_tensor(weights) != 0)
    return ops.sum(ops.cast(outside, "float32"))
