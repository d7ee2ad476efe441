"""Types of the annotations of the public functions and classes."""

from typing import Any, TypeAlias

Tensor: TypeAlias = Any
"""A tensor of the backend that runs, a symbolic `keras.KerasTensor`, or a NumPy array."""

Shape: TypeAlias = tuple[int | None, ...]
"""The shape of a tensor; `None` is a size that is not known yet."""
