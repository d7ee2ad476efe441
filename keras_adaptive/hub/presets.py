"""Checks of preset folders from untrusted sources."""

import json
import os
from pathlib import Path
from typing import Any

import keras

from keras_adaptive.files import read_text, reading
from keras_adaptive.models.model_file import described

CLASSES = {  # of each config
    "config.json": "AdaptiveBackbone",
    "task.json": "AdaptiveCausalLM",
    "preprocessor.json": "AdaptiveCausalLMPreprocessor",
    "tokenizer.json": "AdaptiveTokenizer",
}
WITH_WEIGHTS = ("config.json", "task.json")
MEND = "Put the right file back, or save the preset again."


def from_safe_preset(parent: Any, *files: str) -> Any:
    """Returns the `from_preset` of a class of KerasHub, after a check of the folder and the configs `files` in it."""

    def from_preset(cls: type, preset: str | os.PathLike, *arguments: Any, **kwargs: Any) -> Any:
        """Reads a preset, which may be damaged or hostile.

        The size of the weights in a folder bounds the memory that its configs can make the process allocate.

        Args:
            preset: A folder that `save_to_preset` wrote, or an address such as "hf://user/model", which only KerasHub
                checks.
            *arguments, **kwargs: As in KerasHub.

        Returns:
            An object of the class.

        Raises:
            ValueError: If the folder holds no such preset, or a file is missing or damaged. The message names the file.
        """
        preset = os.fspath(preset)
        if "://" not in preset:
            check_preset(preset, files)
        try:
            made = parent.from_preset.__func__(cls, preset, *arguments, **kwargs)
        except FileNotFoundError as error:
            raise ValueError(
                f"{preset} is not a complete preset ({error}): put the file back, or save it again."
            ) from None
        if preprocessor := getattr(made, "preprocessor", None):
            words, outputs = preprocessor.tokenizer.vocabulary_size(), made.backbone.vocabulary_size
            if words != outputs:
                raise ValueError(
                    f"{preset} holds the model of another vocabulary: it has {outputs:,} words, and vocabulary.txt "
                    f"{words:,}. Put the right file back."
                )
        return made

    return classmethod(from_preset)


def check_preset(folder: str, files: tuple[str, ...]) -> None:
    """Raises a ValueError that names the file if the folder of a preset is not one, or a config is damaged."""
    if not folder or not os.path.isdir(folder):
        raise ValueError(f"A preset is a folder that `save_to_preset` wrote. Received: {folder!r}. Pass its path.")
    if not os.path.exists(os.path.join(folder, "config.json")):
        raise ValueError(f"{folder} holds no preset (config.json is missing): pass a folder of `save_to_preset`.")
    if "task.json" in files and os.path.exists(path := os.path.join(folder, "task.weights.h5")):
        raise ValueError(f"{path} belongs to another task: all weights are in model.weights.h5. Remove it.")
    size = sum(path.stat().st_size for path in Path(folder).glob("*.weights.h5"))
    if not size and not set(files).isdisjoint(WITH_WEIGHTS):
        raise ValueError(f"{folder} holds no weights (model.weights.h5 is missing or empty). {MEND}")
    for name in CLASSES:
        path = os.path.join(folder, name)
        if os.path.exists(path) and name in ("config.json", *files):
            _check_config(path, CLASSES[name], size if name in WITH_WEIGHTS else None, name in files)


def _check_config(path, expected, size, whole):
    """Checks the class in a config and, if `whole`, creates its object without weights."""
    with reading(path, f"the config of an {expected}", MEND):
        config = json.loads(read_text(path))
        if config["registered_name"] != f"keras_adaptive>{expected}":
            raise ValueError(f"it holds a {config['class_name']}")
        if not isinstance(config["config"], dict):
            raise ValueError("it has no settings")
        if whole and size is None:
            keras.saving.deserialize_keras_object(config)
        elif whole:
            uncompiled = {"compile": False} if expected == CLASSES["task.json"] else {}
            described({**config, "config": {**config["config"], **uncompiled}}, size)
