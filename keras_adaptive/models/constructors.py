"""Functions that build bodies and language models; `assemble` is the only place that makes a model of its parts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras

from keras_adaptive.backend.checks import check_number_of_layers
from keras_adaptive.layers.bodies.body import Body
from keras_adaptive.layers.bodies.causal_attention import CausalAttention
from keras_adaptive.layers.bodies.context_concatenation import ContextConcatenation
from keras_adaptive.layers.bodies.position_infused_attention import PositionInfusedAttention
from keras_adaptive.layers.bodies.relative_attention import RelativeAttention
from keras_adaptive.layers.bodies.sinusoidal_positions import SinusoidalPositions
from keras_adaptive.layers.bodies.transformer_block import TransformerBlock
from keras_adaptive.layers.bodies.transformer_decoder import TransformerDecoder
from keras_adaptive.layers.inputs.adaptive_embedding import AdaptiveEmbedding
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.adaptive_softmax import AdaptiveSoftmax
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.models.dropout import Dropout
from keras_adaptive.models.language_model import LanguageModel

POSITIONS = ("sinusoidal", "alibi")


def assemble(
    make_input: Callable[..., Input],
    make_body: Callable[..., Body],
    make_output: Callable[..., Output],
    *,
    tied: bool = False,
    dtype: str | keras.DTypePolicy | None = None,
) -> LanguageModel:
    """Builds a `LanguageModel` from functions that build its three parts.

    Each function is called with the `name` of the part ("word_input", "body" or "word_output") and with `dtype`. It may
    be a `functools.partial` of a layer class.

    Args:
        make_input: Function `(name, dtype)` that returns an `Input`, from ids to word vectors.
        make_body: Function `(name, dtype)` that returns a `Body`, from word vectors to hidden states.
        make_output: Function `(name, dtype)` that returns an `Output`, from hidden states to probabilities. With
            `tied=True` it also gets `tied_to`, the input layer.
        tied: Whether input and output share the word vectors.
        dtype: A Keras dtype policy, such as "mixed_bfloat16"; by default the global one.

    Returns:
        A `LanguageModel`.

    Example:

    >>> model = assemble(
    ...     partial(WordEmbedding, 1_000, 32),
    ...     partial(transformer, num_blocks=2, dim=32, ffn_dim=64, num_heads=4),
    ...     partial(AdaptiveSoftmax, 1_000, ()),
    ...     tied=True,
    ... )
    >>> model.log_probs(np.array([[4, 5, 6]])).shape
    (1, 3, 1000)
    """
    word_input = make_input(name="word_input", dtype=dtype)
    body = make_body(name="body", dtype=dtype)
    shared = {"tied_to": word_input} if tied else {}
    return LanguageModel(word_input, body, make_output(name="word_output", dtype=dtype, **shared))


def transformer(
    *,
    num_blocks: int,
    dim: int,
    ffn_dim: int,
    num_heads: int,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    activation_dropout: float = 0.0,
    output_dim: int | None = None,
    positions: str = "sinusoidal",
    first_position: int = 2,
    **kwargs: Any,
) -> TransformerDecoder:
    """Builds the body of the adaptive-input Transformer: pre-norm attention blocks and sinusoidal positions.

    With `positions="alibi"` the scores of attention have linear biases instead, and nothing is added to the input: the
    body then reads sequences that are longer than those of training.

    Args:
        num_blocks: Number of blocks.
        dim: Dimension of the vectors in the blocks.
        ffn_dim: Width of the feed-forward layers.
        num_heads: Number of attention heads; must divide `dim`.
        dropout: Dropout rate on the input and on both branches of every block, in training.
        attention_dropout: Dropout rate on the attention probabilities, in training.
        activation_dropout: Dropout rate after the ReLU, in training.
        output_dim: Dimension of the hidden states, by default `dim`; another dimension adds a projection without bias.
        positions: "sinusoidal", or "alibi" for linear biases.
        first_position: Position of the first token; 2 in the published models. Linear biases have none.
        **kwargs: Arguments of every Keras layer, such as `name` and `dtype`.

    Returns:
        A `TransformerDecoder`.

    Raises:
        ValueError: If `positions` is another word.

    Reference:
        Baevski and Auli, Adaptive Input Representations for Neural Language Modeling, ICLR 2019, section 4.1; Press et
        al., Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation, ICLR 2022.

    Example:

    >>> body = transformer(num_blocks=2, dim=32, ffn_dim=64, num_heads=4, dropout=0.1)
    >>> tuple(body(np.ones((1, 6, 32), "float32")).shape)
    (1, 6, 32)
    """
    check_number_of_layers(num_blocks, "num_blocks")
    policy, alibi = {"dtype": kwargs.get("dtype")}, _is_alibi(positions)
    make_attention = partial(CausalAttention, num_heads, alibi=alibi, dropout=attention_dropout)
    rates = {"dropout": dropout, "activation_dropout": activation_dropout}
    blocks = _pre_norm_blocks(num_blocks, ffn_dim, make_attention, **rates, **policy)
    added = None if alibi else SinusoidalPositions(first_position, name="positions", **policy)
    return TransformerDecoder(blocks, dim, positions=added, dropout=dropout, output_dim=output_dim, **kwargs)


def _pre_norm_blocks(num_blocks, ffn_dim, make_attention, *, dtype, **rates):
    """Returns blocks with the names that files know, each with an attention of its own."""
    return [
        TransformerBlock(
            ffn_dim, make_attention(name="attention", dtype=dtype), name=f"block_{number}", dtype=dtype, **rates
        )
        for number in range(num_blocks)
    ]


def _is_alibi(positions):
    """Returns whether positions are linear biases, after checking that they are of a kind that is known."""
    if positions not in POSITIONS:
        raise ValueError(f"`positions` must be one of {', '.join(POSITIONS)}. Received: positions={positions!r}.")
    return positions == "alibi"


def hybrid_transformer(
    *,
    num_blocks: int,
    dim: int,
    ffn_dim: int,
    num_heads: int,
    attention_window: int | None = None,
    num_local: int = 0,
    num_global: int = 0,
    global_window: int | None = None,
    positions: str = "sinusoidal",
    dropout: float = 0.0,
    **kwargs: Any,
) -> TransformerDecoder:
    """Builds the body of a post-norm Transformer whose first layer may favor the nearest tokens.

    By default it is the plain Transformer of the paper: attention without biases, and sinusoidal positions from 0. With
    `attention_window` it is Transformer-C, whose first block attends to the nearest tokens only. With `num_local` it is
    Transformer-N, whose first layer concatenates the nearest tokens. The published program keeps the attention of the
    first block after the concatenation; in the paper the concatenation replaces it, which is `attention_window=0`.

    Args:
        num_blocks: Number of blocks.
        dim: Dimension of the vectors in the blocks.
        ffn_dim: Width of the feed-forward layers.
        num_heads: Number of attention heads; must divide `dim`.
        attention_window: Number of tokens that the first block attends to, including the current one; `None` for all,
            and 0 for a first block without attention.
        num_local: Number of concatenated tokens, including the current one; 0 for no concatenation.
        num_global: Number of concatenated weighted averages of earlier tokens.
        global_window: Number of tokens of a weighted average; `None` without averages.
        positions: "sinusoidal", or "alibi" for linear biases in all blocks; see `transformer`.
        dropout: Dropout rate on the input and on both branches of every block, in training.
        **kwargs: Arguments of every Keras layer, such as `name` and `dtype`.

    Returns:
        A `TransformerDecoder`.

    Raises:
        ValueError: If `num_global` is given without `num_local` or without `global_window`, `attention_window=0`
            without `num_local`, or `positions` is another word.

    Reference:
        Sun and Iyyer, Revisiting Simple Neural Probabilistic Language Models, NAACL 2021, section 3.2.

    Example:

    >>> sizes = {"num_blocks": 2, "dim": 32, "ffn_dim": 64, "num_heads": 4}
    >>> transformer_c = hybrid_transformer(attention_window=5, **sizes)
    >>> transformer_n = hybrid_transformer(num_local=5, num_global=1, global_window=10, **sizes)
    >>> tuple(transformer_n(np.ones((1, 6, 32), "float32")).shape)
    (1, 6, 32)
    """
    check_number_of_layers(num_blocks, "num_blocks")
    if not num_local and (num_global or global_window or attention_window == 0):
        raise ValueError(
            "`num_global`, `global_window` and `attention_window=0` belong to a concatenation: pass a `num_local` of "
            f"at least 1. Received: num_local={num_local}, num_global={num_global}, global_window={global_window}, "
            f"attention_window={attention_window}."
        )

    policy, alibi = {"dtype": kwargs.get("dtype")}, _is_alibi(positions)

    def block(number, window=None):
        options = {"use_bias": False, "alibi": alibi, "name": "attention", **policy}
        attention = None if window == 0 else CausalAttention(num_heads, window=window, **options)
        name = f"block_{number}"
        return TransformerBlock(ffn_dim, attention, dropout=dropout, normalize_first=False, name=name, **policy)

    blocks = [block(0, attention_window), *map(block, range(1, num_blocks))]
    if num_local:
        concatenation = ContextConcatenation(
            num_local,
            num_global=num_global,
            global_window=global_window,
            dropout=dropout,
            name="concatenation",
            **policy,
        )
        blocks = [concatenation, *blocks]
    added = None if alibi else SinusoidalPositions(0, name="positions", **policy)
    return TransformerDecoder(blocks, dim, positions=added, dropout=dropout, **kwargs)


def shortformer(
    *,
    num_blocks: int,
    dim: int,
    ffn_dim: int,
    num_heads: int,
    memory_length: int,
    segment_length: int,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    activation_dropout: float = 0.0,
    **kwargs: Any,
) -> TransformerDecoder:
    """Builds the body of Shortformer: pre-norm blocks of `PositionInfusedAttention`, and no positions in the input.

    Train it on streams whose batches have `segment_length` tokens, so that a segment sees the one before it.

    Args:
        num_blocks, dim, ffn_dim, num_heads, dropout, attention_dropout, activation_dropout: As in `transformer`.
        memory_length: Number of tokens before a segment that its tokens see; `segment_length` in the published model.
        segment_length: Number of tokens of a segment.
        **kwargs: Arguments of every Keras layer, such as `name` and `dtype`.

    Returns:
        A `TransformerDecoder`.

    Reference:
        Press, Smith and Lewis, Shortformer: Better Language Modeling Using Shorter Inputs, ACL 2021, section 5.

    Example:

    >>> sizes = {"num_blocks": 2, "dim": 32, "ffn_dim": 64, "num_heads": 4}
    >>> body = shortformer(memory_length=4, segment_length=4, **sizes)
    >>> tuple(body(np.ones((1, 6, 32), "float32")).shape)
    (1, 6, 32)
    """
    check_number_of_layers(num_blocks, "num_blocks")
    policy = {"dtype": kwargs.get("dtype")}
    make_attention = partial(
        PositionInfusedAttention, num_heads, memory_length, segment_length, dropout=attention_dropout
    )
    rates = {"dropout": dropout, "activation_dropout": activation_dropout}
    blocks = _pre_norm_blocks(num_blocks, ffn_dim, make_attention, **rates, **policy)
    return TransformerDecoder(blocks, dim, dropout=dropout, **kwargs)


def transformer_xl(
    *,
    num_blocks: int,
    dim: int,
    ffn_dim: int,
    num_heads: int,
    memory_length: int,
    segment_length: int | None = None,
    share_biases: bool = True,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    **kwargs: Any,
) -> TransformerDecoder:
    """Builds the body of Transformer-XL: post-norm blocks of `RelativeAttention`.

    Train it on streams. With `segment_length`, batches should have so many tokens. Dropout of the hidden states, which
    the published program also applies, is `input_dropout` of the output layer.

    Args:
        num_blocks, dim, ffn_dim, num_heads, attention_dropout: As in `transformer`.
        memory_length: Number of tokens before a segment that its tokens see.
        segment_length: Number of tokens of a segment; `None` for tokens that see `memory_length` tokens up to
            themselves.
        share_biases: Whether all blocks share the vectors u and w.
        dropout: Dropout rate on the input, on both branches of every block, in the feed-forward layers, and on the
            sinusoids of distances, in training.
        **kwargs: Arguments of every Keras layer, such as `name` and `dtype`.

    Returns:
        A `TransformerDecoder`.

    Reference:
        Dai et al., Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, ACL 2019.

    Example:

    >>> sizes = {"num_blocks": 2, "dim": 32, "ffn_dim": 64, "num_heads": 4}
    >>> body = transformer_xl(memory_length=4, **sizes)
    >>> tuple(body(np.ones((1, 6, 32), "float32")).shape)
    (1, 6, 32)
    """
    check_number_of_layers(num_blocks, "num_blocks")
    policy = {"dtype": kwargs.get("dtype")}
    options = {"segment_length": segment_length, "dropout": attention_dropout, "position_dropout": dropout}

    def block(number):
        own = number == 0 or not share_biases
        mixer = RelativeAttention(num_heads, memory_length, own_biases=own, name="attention", **options, **policy)
        rates = {"dropout": dropout, "activation_dropout": dropout}
        return TransformerBlock(ffn_dim, mixer, normalize_first=False, name=f"block_{number}", **rates, **policy)

    return TransformerDecoder(list(map(block, range(num_blocks))), dim, dropout=dropout, **kwargs)


def transformer_lm(
    vocabulary_size: int,
    *,
    dim: int = 1024,
    num_blocks: int = 16,
    num_heads: int = 8,
    ffn_dim: int = 4096,
    cutoffs: Sequence[int] = (20_000, 60_000),
    factor: int | None = 4,
    tie_words: bool = True,
    positions: str = "sinusoidal",
    dropout: float | Dropout = 0.0,
    dtype: str | keras.DTypePolicy | None = None,
) -> LanguageModel:
    """Builds the Transformer with adaptive input and adaptive softmax, by default in the size for WikiText-103.

    The model is ADP-T of the paper if words are tied, and ADP if not.

    Args:
        vocabulary_size: Number of ids, ordered by descending frequency.
        dim: Dimension of the hidden states and of the first band's word vectors.
        num_blocks: Number of Transformer blocks.
        num_heads: Number of attention heads; must divide `dim`.
        ffn_dim: Width of the feed-forward layers.
        cutoffs: First id of every band but the first; `()` for one band and a plain softmax.
        factor: Ratio of the dimensions of a band and the next band.
        tie_words: Whether input and output share the word vectors and the projections of the tails.
        positions: "sinusoidal", or "alibi" for a model that reads texts longer than those of training.
        dropout: Dropout rate on the input and on both branches of every block, in training; or a `Dropout` with the
            rates of all places.
        dtype: A Keras dtype policy, such as "mixed_bfloat16"; by default the global one.

    Returns:
        A `LanguageModel`.

    Reference:
        Baevski and Auli, Adaptive Input Representations for Neural Language Modeling, ICLR 2019.

    Example:

    >>> model = transformer_lm(1_000, dim=32, num_blocks=2, num_heads=4, ffn_dim=64, cutoffs=(100, 400))
    >>> model.log_probs(np.array([[4, 5, 6]])).shape
    (1, 3, 1000)
    """
    rates = dropout if isinstance(dropout, Dropout) else Dropout(dropout)
    make_input = partial(AdaptiveEmbedding, vocabulary_size, embedding_dim=dim, cutoffs=cutoffs, factor=factor)
    make_body = partial(
        transformer,
        num_blocks=num_blocks,
        dim=dim,
        ffn_dim=ffn_dim,
        num_heads=num_heads,
        positions=positions,
        dropout=rates.blocks,
        attention_dropout=rates.attention,
        activation_dropout=rates.activation,
    )
    make_output = partial(
        AdaptiveSoftmax,
        vocabulary_size,
        cutoffs=cutoffs,
        factor=factor,
        tail_dropout=rates.tail,
        input_dropout=rates.input,
    )
    return assemble(make_input, make_body, make_output, tied=tie_words, dtype=dtype)
