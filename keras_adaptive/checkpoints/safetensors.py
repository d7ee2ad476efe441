"""Reads and writes the files of the package safetensors: a length, a header of JSON, and numbers."""

import json
import math
import os
from typing import Any

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
LONGEST_HEADER = 100_000_000  # bytes, the limit of the format


def load_safetensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns the tensors of a file as float32 arrays. The caller converts errors by `files.reading`.

    Raises:
        ValueError: If the header does not describe the bytes that follow it, or names another dtype than floats.
    """
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LONGEST_HEADER, os.path.getsize(path) - 8):
            raise ValueError(f"its header would have {length:,} bytes")
        header = json.loads(file.read(length))
    contents = np.memmap(path, np.uint8, "r", offset=8 + length) if os.path.getsize(path) > 8 + length else np.empty(0)
    header.pop("__metadata__", None)
    if sum(math.prod(entry["shape"]) for entry in header.values()) * 2 > len(contents):
        raise ValueError("it has fewer numbers than its tensors claim")
    return {name: _array(contents, **entry) for name, entry in header.items()}


def _array(contents, dtype, shape, data_offsets):
    start, stop = data_offsets
    if dtype not in DTYPES or not shape or min(shape) < 1 or not 0 <= start <= stop <= len(contents):
        raise ValueError(f"a tensor of dtype {str(dtype)[:20]} and shape {shape} has the bytes {start:,} to {stop:,}")
    array = np.frombuffer(contents[start:stop].tobytes(), DTYPES[dtype]).reshape(shape)
    if dtype == "BF16":  # the upper half of a float32
        array = (array.astype("<u4") << 16).view("<f4")
    return array.astype(np.float32)


def save_safetensors(path: str | os.PathLike, tensors: dict[str, np.ndarray], dtype: str = "float32") -> None:
    """Writes float32 arrays as a file of the package safetensors, for PyTorch.

    Args:
        path: Path of the file.
        tensors: The arrays by name.
        dtype: "float32" or "bfloat16", to which numbers are rounded.

    Example:

    ```python
    save_safetensors("weights.safetensors", {"table": np.ones((2, 3), "float32")})
    load_safetensors("weights.safetensors")["table"].shape  # (2, 3)
    ```
    """
    code, size = {"float32": ("F32", 4), "bfloat16": ("BF16", 2)}[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, array in tensors.items():
        end = position + array.size * size
        header[name] = {"dtype": code, "shape": array.shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            bits = np.ascontiguousarray(array, "<f4")
            file.write((bits if code == "F32" else _rounded(bits.view("<u4"))).tobytes())


def _rounded(bits):
    """Returns the upper halves of float32 numbers, rounded to the nearest, and to even between two."""
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
