import os

from keras_adaptive.backend.checks import non_finite
from keras_adaptive.backend.unallocated import unallocated
from keras_adaptive.checkpoints.tensors import check_weights, load_weights
from keras_adaptive.data import Vocabulary
from keras_adaptive.fairseq.checkpoint import Checkpoint, read_checkpoint
from keras_adaptive.fairseq.options import build_model, cutoffs, resolve
from keras_adaptive.fairseq.weights import table
from keras_adaptive.models import LanguageModel

LAST_BANDS = (  # the option of the cutoffs, the tensor of a band's words, and the index of the first numbered band
    ("adaptive_softmax_cutoff", "decoder.adaptive_softmax.tail.{}.2.weight", 1),
    ("adaptive_input_cutoff", "decoder.embed_tokens.embeddings.{}.0.weight", 0),
)


def load_language_model(
    checkpoint: str | os.PathLike, dictionary: str | os.PathLike, positions: str | None = None
) -> tuple[LanguageModel, Vocabulary]:
    """Loads a language model that was trained with fairseq (`transformer_lm` in any of its architectures).

    The function works on every backend; reading the file needs torch. No code in the file is executed. Checkpoints of
    fairseq 0.6 to 0.12 are supported.

    Args:
        checkpoint: Path of a file such as `model.pt` or `checkpoint_best.pt`.
        dictionary: Path of the `dict.txt` that belongs to it.
        positions: "alibi" for a model whose attention has linear biases, which no file says, or "sinusoidal". By
            default what the file says.

    Returns:
        `(model, vocabulary)`: a `LanguageModel` and a `Vocabulary`.

    Raises:
        ValueError: If the file is not such a checkpoint, contains objects other than tensors, plain containers and
            `argparse.Namespace`, uses an option that is not supported, has tensors that do not match its options or
            are not finite, belongs to a dictionary of another size, or may have linear biases and `positions` is not
            given.
        ModuleNotFoundError: If torch is not installed.

    Reference:
        Ott et al., fairseq: A Fast, Extensible Toolkit for Sequence Modeling, NAACL 2019 (demonstrations).

    Example:

    ```python
    model, vocabulary = load_language_model("adaptive_lm_wiki103/model.pt", "adaptive_lm_wiki103/dict.txt")
    tokens = vocabulary.encode(["</s>", "the", "cat"])[None]
    model.log_probs(tokens)  # (1, 3, 267744)
    ```
    """
    vocabulary = Vocabulary.load(dictionary)
    return build_language_model(read_checkpoint(checkpoint), vocabulary, positions), vocabulary


def build_language_model(checkpoint: Checkpoint, vocabulary: Vocabulary, positions: str | None = None) -> LanguageModel:
    """Builds the language model that a checkpoint describes, with its weights and the vocabulary that belongs to it.

    Arguments and errors are those of `load_language_model`.

    Example:

    ```python
    vocabulary = Vocabulary.load("adaptive_lm_wiki103/dict.txt")
    model = build_language_model(read_checkpoint("adaptive_lm_wiki103/model.pt"), vocabulary)
    ```
    """
    options = resolve(checkpoint, positions)
    sizes = _vocabulary_sizes(options, checkpoint.weights)
    if sizes and len(vocabulary) not in sizes:
        raise ValueError(
            f"The checkpoint needs a dictionary of {sizes[0]:,} words, including the four special ones: pass the "
            f"dict.txt that belongs to it. Received: {len(vocabulary):,} words."
        )
    for option in ("decoder_layers", "char_embedder_highway_layers"):
        if options[option] > len(checkpoint.weights):
            raise ValueError(
                f"The checkpoint has {len(checkpoint.weights)} tensors. Received: {option}={options[option]}."
            )
    check_weights(table(unallocated(lambda: build_model(options, vocabulary))), checkpoint.weights)
    model = build_model(options, vocabulary)
    load_weights(table(model), checkpoint.weights)
    if weight := non_finite(model.weights):
        raise ValueError(
            f"The checkpoint must have finite weights: train again. Received: infinity or NaN in {weight}."
        )
    model.trained_length = options["tokens_per_sample"]
    return model


def _vocabulary_sizes(options, weights):
    """Returns the size of the vocabulary according to each tensor that depends on it."""
    plain = ("decoder.output_projection.weight", "decoder.embed_tokens.weight")
    sizes = [len(weights[name]) for name in plain if name in weights]
    for option, name, first in LAST_BANDS:
        ends = cutoffs(options[option])
        if ends and (last := weights.get(name.format(len(ends) - first))) is not None:
            sizes.append(ends[-1] + len(last))
    return sizes
