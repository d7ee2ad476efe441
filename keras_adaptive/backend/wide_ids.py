"""Numbers that int32 cannot hold, where Keras and JAX would wrap them: 2³² + 5 would be word 5."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.typing import Tensor

LOW, HIGH, HIGH_FLOAT = -(2**31), 2**31 - 1, 2.0**31 - 128  # the last is the largest float32 below 2³¹
WIDE = ("int64", "uint64")


def as_int32(numbers: Any) -> Tensor:
    """Returns an array or a tensor as int32: the nearest number for what int32 cannot hold, and −2³¹ for NaN.

    Fractions are cut off. A symbolic tensor is returned unchanged.
    """
    if isinstance(numbers, keras.KerasTensor):
        return numbers
    on_host = not ops.is_tensor(numbers)
    numbers = np.asarray(numbers) if on_host else numbers
    functions, cast = (np, np.asarray) if on_host else (ops, ops.cast)
    dtype = keras.backend.standardize_dtype(numbers.dtype)
    if "float" in dtype:
        numbers = cast(numbers, "float32") if "16" in dtype else numbers
        numbers = functions.where(numbers >= LOW, functions.clip(numbers, float(LOW), HIGH_FLOAT), float(LOW))
    elif dtype in WIDE:
        numbers = np.minimum(numbers, HIGH) if on_host else numbers  # as tensors, they become negative
        numbers = functions.clip(cast(numbers, "int64"), LOW, HIGH)
    return cast(numbers, "int32")


def saturated(batch: Any) -> Any:
    """Converts the arrays of 64-bit integers in a nested structure by `as_int32` under JAX, which would wrap them.

    Other backends keep the dtype on the way to the step.
    """
    if keras.config.backend() != "jax":
        return batch
    is_wide = lambda leaf: isinstance(leaf, np.ndarray) and leaf.dtype in WIDE  # noqa: E731
    return keras.tree.map_structure(lambda leaf: as_int32(leaf) if is_wide(leaf) else leaf, batch)


def saturate_batches(iterator: Any) -> None:
    """Makes an iterator of `fit` or `evaluate` saturate its batches under JAX, before they are on an accelerator."""
    if keras.config.backend() != "jax" or "get_jax_iterator" in vars(iterator.data_adapter):
        return
    batches = iterator.data_adapter.get_jax_iterator
    iterator.data_adapter.get_jax_iterator = lambda: map(saturated, batches())
