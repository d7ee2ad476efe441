"""Reads the files of the package safetensors: a length, a header of JSON, and numbers."""

import json
import math
import os

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
