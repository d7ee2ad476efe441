"""Reads the options and weights of checkpoint files, under their current names, without running code."""

import argparse
import contextlib
import os
import pickletools
import re
import zipfile
from typing import NamedTuple

import numpy as np

from keras_adaptive.files import check_zip, reading

# Old files also contain meters of the training. They are read as plain namespaces.
METERS = [
    f"fairseq.{module}.{name}"
    for module in ("meters", "logging.meters")
    for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")
]
NUMBERS = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
ALLOWED = {  # names that a file may use; torch accepts many more, such as those of sparse and quantized tensors
    *METERS,
    *(f"torch.{number}Storage" for number in NUMBERS),
    *(f"torch._utils.{name}" for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")),
    *("torch.nn.parameter.Parameter", "torch.Size", "torch.device", "collections.OrderedDict", "argparse.Namespace"),
    *("builtins.set", "__builtin__.set", "_codecs.encode"),
}
PICKLES = 5  # a legacy container has: two numbers, facts about the system, the contents, and names of the tensors
PLAIN = (type(None), bool, int, float, str, list, tuple, dict)  # types of an option
RENAMED = {  # patterns of old names, and their new names
    r"decoder\.embed_out": "decoder.output_projection.weight",
    r"(decoder\.layers\.\d+)\.layer_norms\.0\.(\w+)": r"\1.self_attn_layer_norm.\2",
    r"(decoder\.layers\.\d+)\.layer_norms\.2\.(\w+)": r"\1.final_layer_norm.\2",
}
FUSED = re.compile(r"(.*)\.in_proj_(weight|bias)")  # query, key and value, concatenated
BUFFERS = re.compile(r"(.*\.)?(version|_float_tensor)|decoder\.embed_positions\.weights")


class Checkpoint(NamedTuple):
    """Contents of a checkpoint file of fairseq.

    Attributes:
        options: Dict of the training options. An option of the model replaces an option of the task.
        sections: List of pairs `(section, options)`: the sections of `cfg`, such as "model", with a dict each. A
            namespace of all options counts as the section "args". None stands for `[("args", options)]`.
        architecture: Name of the architecture, such as "transformer_lm_wiki103".
        weights: Dict from names in the current state dict to float32 NumPy arrays.
        version: Version of the layout of the decoder.
    """

    options: dict
    sections: list | None
    architecture: str
    weights: dict
    version: float


def read_checkpoint(path: str | os.PathLike) -> Checkpoint:
    """Reads a checkpoint of fairseq without executing code in the file.

    Both containers of `torch.save` are supported, and options in `args` (a namespace) or `cfg` (nested dicts). A file
    may only contain tensors of numbers, plain containers and `argparse.Namespace`: an allowlist of names is checked
    before the file is loaded. The memory that reading takes is limited by the size of the file.

    Args:
        path: Path of the file, such as `model.pt`.

    Returns:
        A `Checkpoint`.

    Raises:
        ValueError: If the file contains other objects, which the message names, or is not such a checkpoint.
        ModuleNotFoundError: If torch is not installed.

    Example:

    ```python
    checkpoint = read_checkpoint("adaptive_lm_wiki103/model.pt")
    checkpoint.architecture, checkpoint.options["decoder_layers"]
    ```
    """
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Checkpoints of fairseq are files of torch: pip install torch. Any backend of Keras can use the model."
        ) from None
    with reading(path, "a file of torch.save", "Download it again."):
        state = _load(path)
    with reading(path, "a fairseq checkpoint", "Take the model.pt of a `transformer_lm`."):
        if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
            raise ValueError("it must be a dict that holds the weights as 'model'")
        options, model, sections = _options(state)
        architecture = model.get("arch") or model.get("_name") or "transformer_lm"
        tensors = state["model"]
        version = float(tensors.get("decoder.version", [1])[0])
        return Checkpoint(options, sections, architecture, _weights(tensors, os.path.getsize(path)), version)


def _load(path):
    import torch

    is_zip = zipfile.is_zipfile(path)
    if is_zip:
        with zipfile.ZipFile(path) as archive:
            check_zip(archive)
            if (number := sum(map(_is_data, archive.namelist()))) != 1:
                raise ValueError(f"it has {number} files data.pkl")
    if refused := [name[:60] for name in dict.fromkeys(_referred(path)) if name not in ALLOWED]:
        more = f" and {len(refused) - 5} more" if refused[5:] else ""
        raise ValueError(
            f"{path} is not read, because it contains more than tensors, plain containers and argparse.Namespace: "
            f"{', '.join(refused[:5])}{more}. Loading it could run any code: use a file of weights and options only."
        )
    allowed = [argparse.Namespace, *((argparse.Namespace, name) for name in METERS)]
    try:
        with torch.serialization.safe_globals(allowed):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:
        if "weights_only" not in str(error):
            raise
        # The message of torch recommends loading without `weights_only`, which would run code.
        raise ValueError("its pickle is not one of tensors and plain containers") from None


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


def _options(state):
    """Returns all options of model and task, a dict; the options of the model; and the sections of `cfg`, or None."""
    if state.get("args") is not None:
        options = _plain(state["args"])
        return options, options, None
    config = state.get("cfg")
    if not isinstance(config, dict) or config.get("model") is None:
        raise ValueError("it does not say how the model is built, by 'args' or a 'cfg' with 'model'")
    model = _plain(config["model"])
    options = _plain(config.get("task") or {}) | {name: value for name, value in model.items() if value is not None}
    return options, model, list(map(_section, config, config.values()))


def _section(name, given):
    """Returns the name and the options of a section of `cfg`. A section that is not a group is an option itself."""
    if isinstance(given, argparse.Namespace):
        return ("args" if name == "model" else name), _plain(given)
    return name, _plain(given if isinstance(given, dict) else {name: given})


def _plain(options):
    options = vars(options) if isinstance(options, argparse.Namespace) else options
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, PLAIN):
            raise ValueError(f"it holds {type(value).__name__} where there must be a plain option: {str(name)[:80]}")
    return options


def _weights(tensors, size):
    """Returns the weights as arrays under the names of the newest version, without the buffers."""
    import torch

    weights, left = {}, 2 * size  # limits the number of weights: each has at least 2 bytes, and tensors may share them
    for name, tensor in tensors.items():
        if BUFFERS.fullmatch(name):
            continue
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"it holds {type(tensor).__name__} where there must be weights: {name[:80]}")
        if not tensor.ndim:
            raise ValueError(f"it holds a single number where there must be a vector or a matrix: {name[:80]}")
        left -= tensor.numel()
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes() or left < 0:
            raise ValueError(f"it has fewer numbers than its tensors claim: {name[:80]} {tuple(tensor.shape)}")
        # The array is a copy: the tensor is a view of the mapped file, and JAX may use an array without copying it.
        array, fused = tensor.detach().to(torch.float32, copy=True).numpy(), FUSED.fullmatch(name)
        if fused and len(array) % 3 == 0:
            for part, third in zip("qkv", np.split(array, 3)):
                weights[f"{fused[1]}.{part}_proj.{fused[2]}"] = third
        else:
            weights[_renamed(name)] = array
    return weights


def _renamed(name):
    for pattern, replacement in RENAMED.items():
        name = re.sub(f"^{pattern}$", replacement, name)
    return name
