from keras_adaptive.layers.bodies.transformer_decoder import TransformerDecoder
from keras_adaptive.layers.inputs.adaptive_embedding import AdaptiveEmbedding
from keras_adaptive.layers.outputs.adaptive_softmax import AdaptiveSoftmax
from keras_adaptive.models.language_model import LanguageModel


def transformer(
    num_blocks,
    dim,
    ffn_dim,
    num_heads,
    *,
    dropout=0.0,
    attention_dropout=0.0,
    relu_dropout=0.0,
    output_dim=None,
    first_position=2,
    dtype=None,
    name=None,
):
    """Returns the `TransformerDecoder` of Baevski & Auli 2019."""
    return TransformerDecoder(
        num_blocks,
        dim,
        ffn_dim,
        num_heads,
        dropout,
        attention_dropout,
        relu_dropout,
        first_position,
        output_dim=output_dim,
        dtype=dtype,
        name=name,
    )


def assemble(make_input, make_body, make_output, *, tied=False, dtype=None):
    """Returns the `LanguageModel` of three parts.

    Args:
        make_input, make_body, make_output: callables that take `name` and `dtype`; if tied, `make_output` takes
            `tied_to` too.
        tied: whether the output shares the word vectors of the input.
        dtype: a Keras dtype policy; by default the global one.
    """
    word_input = make_input(name="word_input", dtype=dtype)
    body = make_body(name="body", dtype=dtype)
    shared = {"tied_to": word_input} if tied else {}
    return LanguageModel(word_input, body, make_output(name="word_output", dtype=dtype, **shared))


def transformer_lm(
    vocabulary_size,
    dim=1024,
    num_blocks=16,
    num_heads=8,
    ffn_dim=4096,
    cutoffs=(20_000, 60_000),
    factor=4,
    tie_words=True,
    tie_projections=True,
    dropout=0.0,
    attention_dropout=0.0,
    relu_dropout=0.0,
    tail_dropout=0.0,
    input_dropout=0.0,
    first_position=2,
    dtype=None,
):
    """The adaptive-input, adaptive-softmax Transformer; the defaults are the size of the paper's WikiText-103 model.

    Baevski & Auli 2019: ADP-T when words and projections are tied, ADP when neither is.

    Args:
        vocabulary_size: number of ids, ordered by descending frequency.
        dim: dimension of the hidden vectors and of the first band's word vectors.
        num_blocks: Transformer blocks.
        num_heads: attention heads; must divide `dim`.
        ffn_dim: width of the feed-forward layers.
        cutoffs: first id of every band but the first; `()` is one band and a plain softmax.
        factor: how many times smaller each band's dimension is than the one before.
        tie_words: whether input and output share the word vectors.
        tie_projections: whether they share the projections of the tails too (with tied words).
        dropout: rate on the input and on both branches of every block.
        attention_dropout: rate on the attention probabilities.
        relu_dropout: rate behind the ReLU.
        tail_dropout: rate on the projected hidden vectors of the tails.
        input_dropout: rate on the hidden vectors before the output layer.
        first_position: position of the first token.
        dtype: a Keras dtype policy, such as "mixed_bfloat16"; by default the global one.

    Returns:
        A `LanguageModel`.
    """
    embedding = AdaptiveEmbedding(vocabulary_size, dim, cutoffs, factor=factor, dtype=dtype, name="word_input")
    body = TransformerDecoder(
        num_blocks,
        dim,
        ffn_dim,
        num_heads,
        dropout,
        attention_dropout,
        relu_dropout,
        first_position,
        dtype=dtype,
        name="body",
    )
    softmax = AdaptiveSoftmax(
        vocabulary_size,
        cutoffs,
        factor,
        tail_dropout,
        input_dropout,
        tied_to=embedding if tie_words else None,
        tie_projections=tie_projections,
        dtype=dtype,
        name="word_output",
    )
    return LanguageModel(embedding, body, softmax)
