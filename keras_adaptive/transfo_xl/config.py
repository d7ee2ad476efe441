"""The config.json of a Transformer-XL: its options, and those that are not supported."""

import json
import os
import reprlib
from typing import Any

from keras_adaptive.fields import Field, number, whole
from keras_adaptive.files import read_text, reading

SIZE = whole(1, 2**31 - 1)
FIELDS = {
    **dict.fromkeys(("vocab_size", "n_layer", "n_head", "d_model", "d_inner", "mem_len"), SIZE),
    "div_val": whole(2, 2**31 - 1),
    "cutoffs": Field(
        "a list of one or more whole numbers",
        lambda value: isinstance(value, list) and value and all(map(SIZE.holds, value)),
    ),
    "tie_projs": Field(
        "a list of true and false",
        lambda value: isinstance(value, list) and all(isinstance(tied, bool) for tied in value),
    ),
    "clamp_len": whole(-1, 2**31 - 1, default=-1),
    "tgt_len": whole(1, 2**31 - 1, default=128),  # tokens of a segment in training
    "dropout": number(0, 1, default=0.1),
    "dropatt": number(0, 1, default=0.0),
}
FIXED = {  # the only values of other options that are supported
    "model_type": "transfo-xl",
    "adaptive": True,
    "attn_type": 0,
    "ext_len": 0,
    "layer_norm_epsilon": 1e-5,
    "pre_lnorm": False,
    "proj_share_all_but_first": True,
    "same_length": True,
    "sample_softmax": -1,
    "tie_weight": True,
    "tie_word_embeddings": True,
    "untie_r": True,
}
HARMLESS = {  # options that do not change what a trained model computes
    "_name_or_path", "architectures", "bos_token_id", "dtype", "eos_token_id", "init", "init_range", "init_std",
    "pad_token_id", "proj_init_std", "task_specific_params", "torch_dtype", "transformers_version",
}  # fmt: skip


def read_config(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the options of a config.json with their defaults.

    Args:
        path: Path of the file.

    Raises:
        ValueError: If the file is not of a Transformer-XL, or has options that are not supported. The message names
            them.
    """
    with reading(path, "the config.json of a Transformer-XL", "Take the one beside the weights."):
        given = json.loads(read_text(path))
        if not isinstance(given, dict) or given.get("model_type") != FIXED["model_type"]:
            raise ValueError("its model_type must be transfo-xl")
    options = {name: given.get(name, field.default) for name, field in FIELDS.items()}
    for name, field in FIELDS.items():
        if not field.holds(options[name]):
            received = "no such option" if options[name] is ... else reprlib.repr(options[name])
            raise ValueError(f"The option {name} in {path} must be {field.expected}. Received: {name}={received}.")
    _refuse(given, options)
    return options


def _refuse(given, options):
    """Raises a ValueError that names all options that are not supported. Unknown ones may be false, empty or 0."""
    dim, heads = options["d_model"], options["n_head"]
    fixed = {**FIXED, "d_embed": dim, "d_head": dim / heads}
    unknown = {name for name in given if given[name]} - FIELDS.keys() - HARMLESS - fixed.keys()
    refused = [name for name in given if name in unknown or name in fixed and given[name] != fixed[name]]
    if refused:
        listed = ", ".join(f"{name[:80]}={reprlib.repr(given[name])}" for name in refused[:8])
        raise ValueError(
            f"The model was trained with options that are not supported: {listed}. Each may change what the model "
            "computes."
        )
