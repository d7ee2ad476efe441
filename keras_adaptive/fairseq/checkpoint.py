"""Reads the options and weights of checkpoint files, under their current names, without running code."""

import argparse
import os
import re
from typing import NamedTuple

import numpy as np

from keras_adaptive.checkpoints.pickles import arrays, load_tensors
from keras_adaptive.files import reading

# Old files also contain meters of the training. They are read as plain namespaces.
METERS = [
    f"fairseq.{module}.{name}"
    for module in ("meters", "logging.meters")
    for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")
]
CLASSES = {"argparse.Namespace": argparse.Namespace, **dict.fromkeys(METERS, argparse.Namespace)}
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
        state = load_tensors(path, CLASSES)
    with reading(path, "a fairseq checkpoint", "Take the model.pt of a `transformer_lm`."):
        if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
            raise ValueError("it must be a dict that holds the weights as 'model'")
        options, model, sections = _options(state)
        architecture = model.get("arch") or model.get("_name") or "transformer_lm"
        tensors = state["model"]
        version = float(tensors.get("decoder.version", [1])[0])
        return Checkpoint(options, sections, architecture, _weights(tensors, os.path.getsize(path)), version)


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
    weights = {}
    for name, array in arrays({name: tensors[name] for name in tensors if not BUFFERS.fullmatch(name)}, size):
        fused = FUSED.fullmatch(name)
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
