import os
from functools import partial
from pathlib import Path

from keras_adaptive.backend.checks import non_finite
from keras_adaptive.backend.unallocated import unallocated
from keras_adaptive.checkpoints.tensors import check_weights, load_weights
from keras_adaptive.data import Vocabulary
from keras_adaptive.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    RelativeAttention,
    TransformerBlock,
    TransformerDecoder,
)
from keras_adaptive.models import LanguageModel, assemble
from keras_adaptive.transfo_xl.config import read_config
from keras_adaptive.transfo_xl.weights import arranged, read_weights, table
from keras_adaptive.transfo_xl.words import read_words

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
VOCABULARIES = ("vocab.pkl", "vocab.bin", "vocab.txt")


def is_checkpoint(path: str | os.PathLike) -> bool:
    """Returns whether a path is in the form of Hugging Face: a folder, or the weights beside a config.json.

    Args:
        path: Path of a folder or a file.

    Example:

    >>> is_checkpoint("adaptive_lm_wiki103/model.pt")
    False
    """
    path = Path(path)
    return path.is_dir() or path.name in WEIGHTS and (path.parent / CONFIG).exists()


def load_language_model(
    checkpoint: str | os.PathLike, dictionary: str | os.PathLike | None = None
) -> tuple[LanguageModel, Vocabulary]:
    """Loads a Transformer-XL in the form of Hugging Face, such as `transfo-xl-wt103`.

    The function works on every backend; pytorch_model.bin needs torch. No code in the files is executed. The words keep
    their order, but the four special words come first: `<eos>` is `</s>`, and `<s>` and `<pad>` are added with
    probability 0. The memory begins as zeros that are seen, as in the published model.

    Args:
        checkpoint: Path of a folder with config.json and model.safetensors or pytorch_model.bin, or of one of the two.
        dictionary: Path of the vocabulary: vocab.bin, vocab.pkl, or a text file with a word per line. By default the
            one in the folder.

    Returns:
        `(model, vocabulary)`: a `LanguageModel` and a `Vocabulary`.

    Raises:
        ValueError: If a file is missing or damaged, contains other objects than tensors and plain containers, an option
            is not supported, or tensors do not match the options or are not finite.
        ModuleNotFoundError: If torch is needed and not installed.

    Reference:
        Dai et al., Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, ACL 2019.

    Example:

    ```python
    model, vocabulary = load_language_model("transfo-xl-wt103")
    tokens = vocabulary.encode(["</s>", "the", "cat"])[None]
    model.log_probs(tokens)  # (1, 3, 267737)
    ```
    """
    folder = Path(checkpoint) if os.path.isdir(checkpoint) else Path(checkpoint).parent
    options = read_config(folder / CONFIG)
    path = _first(folder, WEIGHTS, "weights") if os.path.isdir(checkpoint) else Path(checkpoint)
    words = read_words(dictionary or _first(folder, VOCABULARIES, "vocabulary"), options["cutoffs"][0])
    if len(words.order) - words.added != options["vocab_size"]:
        raise ValueError(
            f"The checkpoint needs a vocabulary of {options['vocab_size']:,} words: pass the one that belongs to it. "
            f"Received: {len(words.order) - words.added:,} words."
        )
    weights = arranged(read_weights(path), words, len(options["cutoffs"]) + 1)
    if options["n_layer"] > len(weights):
        raise ValueError(f"The checkpoint has {len(weights)} tensors. Received: n_layer={options['n_layer']}.")
    make_model = partial(_build, options, words.added)
    check_weights(table(unallocated(make_model)), weights)
    model = make_model()
    load_weights(table(model), weights)
    if weight := non_finite(model.weights):
        raise ValueError(f"The checkpoint must have finite weights. Received: infinity or NaN in {weight}.")
    model.trained_length = options["tgt_len"]
    return model, words.vocabulary


def _first(folder, names, what):
    """Returns the path of the first of these files that the folder has."""
    for path in (folder / name for name in names):
        if path.exists():
            return path
    passed = ": pass dictionary (--dictionary)" if names is VOCABULARIES else ""
    raise ValueError(f"{folder} must have a file of the {what}, {' or '.join(names)}{passed}.")


def _build(options, added):
    """Returns the model with random weights; its first band has `added` more words than the published one."""
    size, cutoffs = options["vocab_size"] + added, [cutoff + added for cutoff in options["cutoffs"]]
    return assemble(
        partial(AdaptiveEmbedding, size, options["d_model"], cutoffs, factor=options["div_val"]),
        partial(_body, options),
        partial(
            AdaptiveSoftmax,
            size,
            cutoffs,
            use_bias=True,
            tie_projections=options["tie_projs"],
            input_dropout=options["dropout"],
        ),
        tied=True,
    )


def _body(options, **kwargs):
    rate = options["dropout"]
    blocks = [
        TransformerBlock(
            options["d_inner"],
            RelativeAttention(
                options["n_head"],
                options["mem_len"],
                clamp_length=options["clamp_len"] if options["clamp_len"] > 0 else None,
                attend_empty=True,
                dropout=options["dropatt"],
                position_dropout=rate,
                name="attention",
            ),
            dropout=rate,
            activation_dropout=rate,
            normalize_first=False,
            name=f"block_{number}",
        )
        for number in range(options["n_layer"])
    ]
    return TransformerDecoder(blocks, options["d_model"], dropout=rate, **kwargs)
