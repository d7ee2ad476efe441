"""Reads pickled files by an allowlist of names, without running code."""

import contextlib
import os
import pickle
import pickletools
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_adaptive.files import check_zip

NUMBERS = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
TENSORS = {  # names that tensors need; torch accepts many more, such as those of sparse and quantized tensors
    *(f"torch.{number}Storage" for number in NUMBERS),
    *(f"torch._utils.{name}" for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")),
    *("torch.nn.parameter.Parameter", "torch.Size", "torch.device", "collections.OrderedDict"),
    *("builtins.set", "__builtin__.set", "_codecs.encode"),
}
PICKLES = 5  # a legacy container has: two numbers, facts about the system, the contents, and names of the tensors
MAGIC = 0x1950A86A20F9469CFC6C  # the first of the two numbers
CONTAINERS = {("collections", "Counter"): Counter, ("collections", "OrderedDict"): OrderedDict}


def load_tensors(path: str | os.PathLike, classes: Mapping[str, type] | None = None) -> Any:
    """Returns the contents of a file of `torch.save`, in either of its containers.

    An allowlist of names is checked before the file is loaded. The caller converts errors by `files.reading`.

    Args:
        path: Path of the file.
        classes: Dict from the full names of further classes to classes that take their place.

    Raises:
        ValueError: If the file contains other objects, which the message names.
        ModuleNotFoundError: If torch is not installed.
    """
    classes = classes or {}
    is_zip = zipfile.is_zipfile(path)
    if is_zip:
        with zipfile.ZipFile(path) as archive:
            check_zip(archive)
            if (number := sum(map(_is_data, archive.namelist()))) != 1:
                raise ValueError(f"it has {number} files data.pkl")
    names = dict.fromkeys(_referred(path))
    if refused := [name[:60] for name in names if name not in TENSORS and name not in classes]:
        more = f" and {len(refused) - 5} more" if refused[5:] else ""
        kinds = ["tensors, plain containers", *dict.fromkeys(_full_name(kind) for kind in classes.values())]
        raise ValueError(
            f"{path} is not read, because it contains more than {' and '.join(kinds)}: "
            f"{', '.join(refused[:5])}{more}. Loading it could run any code: use a file of weights and options only."
        )
    return _load(path, classes, is_zip)


def _load(path, classes, is_zip):
    import torch

    try:
        with torch.serialization.safe_globals([(kind, name) for name, kind in classes.items()]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:
        if "weights_only" not in str(error):
            raise
        # The message of torch recommends loading without `weights_only`, which would run code.
        raise ValueError("its pickle is not one of tensors and plain containers") from None


def _full_name(kind):
    return f"{kind.__module__}.{kind.__name__}"


def _referred(path):
    """Yields the names of classes and functions in the pickles of a file, without running them."""
    with contextlib.suppress(Exception), _pickles(path) as file:  # `torch.load` reports damage
        for _ in range(PICKLES):
            memo, strings, pushed = [], [], None
            for opcode, argument, _ in pickletools.genops(file):
                if opcode.name in ("GLOBAL", "INST"):
                    yield argument.replace(" ", ".")
                elif opcode.name == "STACK_GLOBAL":
                    yield ".".join(strings[-2:])
                elif opcode.name == "MEMOIZE":
                    memo.append(pushed)
                    continue
                pushed = memo[argument] if memo and opcode.name.endswith("BINGET") else argument
                if isinstance(pushed, str):
                    strings.append(pushed)


def _pickles(path):
    """Opens the pickled part of a file. In the legacy container, this is the whole file."""
    if not zipfile.is_zipfile(path):
        return open(path, "rb")
    archive = zipfile.ZipFile(path)
    return archive.open(next(filter(_is_data, archive.namelist())))


def _is_data(name):
    return name.endswith("data.pkl")


def load_containers(path: str | os.PathLike) -> Any:
    """Returns the plain containers in a pickle, or in a file of `torch.save` without tensors.

    `Counter` and `OrderedDict` are the only classes that the file may name. The caller converts errors by
    `files.reading`.

    Raises:
        ValueError: If the file names others. The message names the first one.
    """
    with _pickles(path) as file:
        contents = _Unpickler(path, file).load()
        for _ in range(3 if contents == MAGIC else 0):
            contents = _Unpickler(path, file).load()
    return contents


class _Unpickler(pickle.Unpickler):
    def __init__(self, path, file):
        super().__init__(file)
        self.path = path

    def find_class(self, module, name):
        if (module, name) not in CONTAINERS:
            raise ValueError(
                f"{self.path} is not read, because it contains more than plain containers: {module[:60]}.{name[:60]}. "
                "Loading it could run any code: write its words to a text file, one per line."
            )
        return CONTAINERS[module, name]


def arrays(tensors: Mapping[str, Any], size: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the names of tensors and copies of them as float32 arrays.

    Args:
        tensors: Dict from names to tensors of torch.
        size: Size in bytes of the file, which limits the memory that the arrays take.

    Raises:
        ValueError: If a value is not a tensor of numbers that the file holds.
    """
    import torch

    left = 2 * size  # limits the number of weights: each has at least 2 bytes, and tensors may share them
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"it holds {type(tensor).__name__} where there must be weights: {name[:80]}")
        if not tensor.ndim:
            raise ValueError(f"it holds a single number where there must be a vector or a matrix: {name[:80]}")
        left -= tensor.numel()
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes() or left < 0:
            raise ValueError(f"it has fewer numbers than its tensors claim: {name[:80]} {tuple(tensor.shape)}")
        # The array is a copy: the tensor is a view of the mapped file, and JAX may use an array without copying it.
        yield name, tensor.detach().to(torch.float32, copy=True).numpy()
