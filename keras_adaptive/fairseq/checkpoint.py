"""Reader of checkpoint files: options and weights, under their current names, without running code."""

import argparse
import contextlib
import pickletools
import re
import zipfile
from typing import NamedTuple

import numpy as np

# Old files hold meters of the training beside the weights. They are read as plain namespaces.
METERS = [
    f"fairseq.{module}.{name}"
    for module in ("meters", "logging.meters")
    for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")
]
ALLOWED = "|".join([r"torch\..*", r"collections\.OrderedDict", r"argparse\.Namespace", *map(re.escape, METERS)])
RENAMED = {  # patterns of old names
    r"decoder\.embed_out": "decoder.output_projection.weight",
    r"(decoder\.layers\.\d+)\.layer_norms\.0\.(\w+)": r"\1.self_attn_layer_norm.\2",
    r"(decoder\.layers\.\d+)\.layer_norms\.2\.(\w+)": r"\1.final_layer_norm.\2",
}
FUSED = re.compile(r"(.*)\.in_proj_(weight|bias)")  # query, key and value, concatenated
BUFFERS = re.compile(r".*(version|_float_tensor|decoder\.embed_positions\.weights)")


class Checkpoint(NamedTuple):
    """Contents of a checkpoint file.

    Attributes:
        options: Dict of the training options; an option of the model replaces an option of the task.
        model_options: Dict of the options of the model alone, None if the file does not separate them.
        architecture: Name of the architecture, such as "transformer_lm_wiki103".
        weights: Dict from the name in the current state dict to a float32 NumPy array.
        version: Version of the layout of the decoder.
    """

    options: dict
    model_options: dict | None
    architecture: str
    weights: dict
    version: float


def read_checkpoint(path):
    """Reads a file of `torch.save`, of either container, with `args` (a namespace) or `cfg` (nested dicts).

    Nothing in the file is executed. A file that holds other objects than tensors, plain containers and
    `argparse.Namespace` is refused.

    Raises:
        ValueError: If the file holds other objects, which the message names, or is not such a checkpoint.
        ModuleNotFoundError: If torch is not installed.
    """
    state = _load(path)
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise ValueError(f"{path} is not a fairseq checkpoint: it must be a dict that holds the weights as 'model'.")
    options, model, model_options = _options(state, path)
    architecture = model.get("arch") or model.get("_name") or "transformer_lm"
    tensors = state["model"]
    version = float(tensors.get("decoder.version", [1])[0])
    return Checkpoint(options, model_options, architecture, _weights(tensors, path), version)


def _load(path):
    try:
        import torch
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Checkpoints of fairseq are files of torch: pip install torch. Any backend of Keras can use the model."
        ) from None
    allowed = [argparse.Namespace, *((argparse.Namespace, name) for name in METERS)]
    open(path, "rb").close()  # a missing file has its own error
    try:
        with torch.serialization.safe_globals(allowed):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # a damaged or malicious file can raise any error
        strange = dict.fromkeys(name for name in _referred(path) if not re.fullmatch(ALLOWED, name))
        if strange:
            raise ValueError(
                f"{path} is not read, because it holds more than tensors, plain containers and argparse.Namespace: "
                f"{', '.join(strange)}. Loading it could run any code."
            ) from None
        raise ValueError(f"{path} is not a file of torch.save, or is damaged: {' '.join(str(error).split())}") from None


def _referred(path):
    """Yields the names of classes and functions in the pickles of a file, without running them."""
    with contextlib.suppress(Exception), _pickles(path) as file:
        while True:
            memo, strings, pushed = [], [], None
            for opcode, argument, _ in pickletools.genops(file):
                if opcode.name == "GLOBAL":
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
    """Opens the pickled part of a file, which is the whole file in the legacy container."""
    if not zipfile.is_zipfile(path):
        return open(path, "rb")
    archive = zipfile.ZipFile(path)
    return archive.open(next(name for name in archive.namelist() if name.endswith("data.pkl")))


def _options(state, path):
    """Returns all options, the dict with the model's options, and the same dict if it holds no others, else None."""
    if state.get("args") is not None:
        options = _plain(state["args"])
        return options, options, None
    config = state.get("cfg")
    if not isinstance(config, dict) or config.get("model") is None:
        raise ValueError(f"{path} does not say how the model is built: it has neither 'args' nor a 'cfg' with 'model'.")
    model = _plain(config["model"])
    options = _plain(config.get("task") or {}) | {name: value for name, value in model.items() if value is not None}
    return options, model, model if isinstance(config["model"], dict) else None


def _plain(options):
    return vars(options) if isinstance(options, argparse.Namespace) else options


def _weights(tensors, path):
    """Returns the weights as arrays under the names of the newest version, without the buffers."""
    import torch

    weights = {}
    for name, tensor in tensors.items():
        if BUFFERS.fullmatch(name):
            continue
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{path} holds {type(tensor).__name__} where there must be weights: {name}.")
        # A copy, because the tensor is a part of the mapped file, and JAX may use an array without copying it.
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
