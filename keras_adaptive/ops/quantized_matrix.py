"""Matrices that are stored in 8 or 4 bits: a table of words, or the kernel of a dense layer."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.sparse.gradients import take_rows
from keras_adaptive.typing import Shape, Tensor

LARGEST = {8: 127, 4: 7}  # integer by number of bits


class QuantizedMatrix:
    """A matrix of integers, with a scale for each block of columns of each row.

    A value is its integer times the scale of its block. Two integers of 4 bits share a byte, as in
    `keras.quantizers.pack_int4`. `floats` and `rows_of` compute the values that are needed, and no others.

    Args:
        values: Int8 variable or tensor (rows, columns), or (rows, ⌈columns / 2⌉) for 4 bits.
        scales: Float16 variable or tensor (rows, number of blocks).
        columns: Number of columns.
        bits: 8 or 4.
        block: Number of columns that share a scale.
    """

    def __init__(self, values: Tensor, scales: Tensor, *, columns: int, bits: int, block: int) -> None:
        self.values = values
        self.scales = scales
        self.columns = columns
        self.bits = bits
        self.block = block

    @property
    def shape(self) -> Shape:
        """The shape of the matrix, (rows, columns)."""
        return (self.values.shape[0], self.columns)

    def of_rows(self, function: Callable[[Tensor], Tensor]) -> "QuantizedMatrix":
        """Returns the matrix of some rows, which `function` selects from a tensor (rows, …)."""
        sizes = {"columns": self.columns, "bits": self.bits, "block": self.block}
        return QuantizedMatrix(function(self.values), function(self.scales), **sizes)

    def __getitem__(self, rows: slice) -> "QuantizedMatrix":
        return self.of_rows(lambda tensor: tensor[rows])

    def floats(self) -> Tensor:
        """Returns the values (rows, columns) float32."""
        values = self.values
        if self.bits == 4:
            values = keras.quantizers.unpack_int4(ops.convert_to_tensor(values), self.columns, axis=-1)
        scales = ops.cast(self.scales, "float32")
        if scales.shape[-1] > 1:
            scales = ops.repeat(scales, self.block, axis=-1)[..., : self.columns]
        product = ops.cast(values, "float32") * scales
        return ops.reshape(product, (*ops.shape(product)[:-1], self.columns))  # TensorFlow lost the number of columns


def quantize(matrix: np.ndarray, bits: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the `values` and the `scales` of a `QuantizedMatrix`.

    The scale of a block maps its largest absolute value to the largest integer, and others to the nearest integer.
    """
    rows, columns = matrix.shape
    largest, padded = LARGEST[bits], np.zeros((rows, -(-columns // block) * block), "float32")
    padded[:, :columns] = matrix
    blocks = padded.reshape(rows, -1, block)
    scales = (np.abs(blocks).max(axis=-1, keepdims=True) / largest).astype("float16")
    divisors = np.where(scales > 0, scales, 1).astype("float32")  # float16 holds no smaller scale than 6e-8
    values = np.clip(np.rint(blocks / divisors), -largest, largest).astype("int8").reshape(rows, -1)[:, :columns]
    if bits == 4:
        values = ops.convert_to_numpy(keras.quantizers.pack_int4(values, axis=-1)[0])
    return values, scales[..., 0]


def floats(matrix: Any) -> Tensor:
    """Returns the values of a `QuantizedMatrix`, and any other matrix unchanged."""
    return matrix.floats() if isinstance(matrix, QuantizedMatrix) else matrix


def rows_of(matrix: Any, ids: Tensor) -> Tensor:
    """Returns the rows `ids` (…) of a matrix, quantized or not: (…, columns)."""
    if isinstance(matrix, QuantizedMatrix):
        return matrix.of_rows(lambda tensor: ops.take(tensor, ids, axis=0)).floats()
    return take_rows(matrix, ids)
