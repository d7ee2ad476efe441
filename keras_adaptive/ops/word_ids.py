"""Ids of words as int32, in which every id outside the vocabulary stays outside."""

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
