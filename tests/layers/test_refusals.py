"""What the layers refuse, and what their base classes leave to subclasses."""

import keras
import numpy as np
import pytest

from keras_adaptive.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    Body,
    CausalAttention,
    CharCNN,
    CharCNNSoftmax,
    CharLSTMSoftmax,
    ContextConcatenation,
    Input,
    LearnedPositions,
    LSTMDecoder,
    Mixer,
    NPLMDecoder,
    Output,
    PositionInfusedAttention,
    QRNNDecoder,
    RelativeAttention,
    SampledSoftmax,
    SinusoidalPositions,
    TransformerBlock,
    TransformerDecoder,
    WordEmbedding,
)
from keras_adaptive.models import transformer

pytestmark = pytest.mark.once

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = [*SPECIAL, "a", "the", "then", "thé"]
SPELLED = [*SPECIAL, *(f"word{i}" for i in range(16))]
COUNTS, NAN = np.arange(20)[::-1], float("nan")


def zeros(*shape):
    return np.zeros(shape, "float32")


def built(layer, dim=8):
    layer.build((None, None, dim))
    return layer


def tied_to(*sizes):
    """Returns a softmax that is tied to an adaptive embedding of these sizes."""
    return AdaptiveSoftmax(20, (5, 12), tied_to=AdaptiveEmbedding(*sizes, factor=2))


def banded():
    return built(AdaptiveSoftmax(20, (5, 9, 15), factor=2))


def drawn(temperature):
    return banded().sample(zeros(1, 8), temperature=temperature)


def sampled(**arguments):
    return SampledSoftmax(20, **{"num_samples": 6, **arguments})


def lstm(num_layers=2, units=5, output_dim=3, **arguments):
    return LSTMDecoder(num_layers, units, output_dim, **arguments)


def qrnn(num_layers=2, units=5, output_dim=3, **arguments):
    return QRNNDecoder(num_layers, units, output_dim, **arguments)


class Nothing(Output):
    vocabulary_size, boundaries = 6, (0, 6)


INPUTS = [
    (lambda: AdaptiveEmbedding(40, 16, (12, 5)), "`cutoffs`"),
    (lambda: AdaptiveEmbedding(40, 3, (5, 12)), "at least 1"),
    (lambda: WordEmbedding(0, 4), "at least 1"),
    (lambda: WordEmbedding(9, 4, embedding_dropout=-0.1), "`rate` must be from 0 to 1. Received: rate=-0.1"),
    (lambda: WordEmbedding(9, 4, embedding_dropout=1.1), "`rate` must be from 0 to 1. Received: rate=1.1"),
    (lambda: WordEmbedding(4, 2).for_inference(["new"]), "Only an input that reads bytes.* for a WordEmbedding"),
    (lambda: WordEmbedding(4, 2).for_inference([]), "Only an input that reads bytes.* for a WordEmbedding"),
    (lambda: CharCNN([*SPECIAL, "a", ""], 6), "empty word"),
    (lambda: CharCNN(["the", "cat"], 6), "must begin with"),
    (lambda: CharCNN(SPECIAL, 6, max_bytes=2, filters=(3, 4, 5)), "at least 3"),
]
SOFTMAXES = [
    (lambda: AdaptiveSoftmax(20, (12, 5)), "`cutoffs` must be positive and strictly increasing"),
    (lambda: AdaptiveSoftmax(20, (5, 25)), "below `vocabulary_size`"),
    (lambda: tied_to(20, 8, (5, 13)), r"`tied_to` must be .* Received: boundaries \(0, 5, 13, 20\)"),
    (lambda: tied_to(21, 8, (5, 12)), "same vocabulary and cutoffs"),
    (lambda: tied_to(21, 8, ()), "same vocabulary and cutoffs, or a `WordEmbedding`"),
    (lambda: built(AdaptiveSoftmax(20, (5, 12))), "at least 1.*dim=8, factor=4"),
    (lambda: built(tied_to(20, 16, (5, 12))), "pass tie_projections=False. Received: hidden states of dimension 8"),
    (lambda: AdaptiveSoftmax(20, (5,), tie_projections=(False,)), r"bool per band, 2 in all. .*=\(False,\)"),
    (lambda: AdaptiveSoftmax(20, (5,), tie_projections=(False, True)), "of an `AdaptiveEmbedding` .*tied_to=NoneType"),
    (
        lambda: AdaptiveSoftmax(20, (5,), factor=None, tie_projections=(False, False)),
        "needs bands with tables of their own",
    ),
    (
        lambda: built(AdaptiveSoftmax(20, (5, 12), tied_to=WordEmbedding(20, 16))),
        "need .* of its `output_dim`, 16: .* Received: hidden states of dimension 8",
    ),
    (
        lambda: built(AdaptiveSoftmax(20, (5, 12), tied_to=CharCNN(SPELLED, 8, filters=(2,), max_bytes=4))),
        "`tied_to` must have a table .* Received: a CharCNN",
    ),
    *(
        (
            lambda make=make, size=size, words=words: make(20, size, tied_to=words),
            r"embed words by `WordEmbedding\(.*Received: a ",
        )
        for make, size in ((AdaptiveSoftmax, ()), (SampledSoftmax, 6))
        for words in (keras.layers.Embedding(20, 8), zeros(20, 8))
    ),
    (lambda: banded().top_k(zeros(1, 8), 0), "`k` must be between 1 and 20. Received: k=0"),
    (lambda: banded().top_k(zeros(1, 8), 21), "`k` must be between 1 and 20. Received: k=21"),
    (lambda: drawn(-1), "`temperature` must not be negative. Received: temperature=-1"),
    (lambda: drawn(NAN), "`temperature` must not be negative. Received: temperature=nan"),
    (lambda: sampled(num_samples=21), "`num_samples` must be from 1 to `vocabulary_size`, 20: draw fewer"),
    (lambda: sampled(num_samples=0), "`num_samples` must be from 1 to `vocabulary_size`, 20.*Received: num_samples=0"),
    (lambda: sampled(loss="softmax"), "`loss` must be one of importance_sampling, nce. Received: loss='softmax'"),
    (lambda: sampled(counts=COUNTS[1:]), r"`counts` must be 20 integers of at least 0, .*: shape=\(19,\), dtype=int64"),
    (lambda: sampled(counts=COUNTS / 2), "`counts` must be 20 integers of at least 0"),
    (lambda: sampled(counts=COUNTS - 1), "`counts` must be 20 integers of at least 0"),
    (lambda: sampled(counts=0 * COUNTS), "`counts` must not be 0 for all words: pass the counts of a text"),
    (lambda: sampled(tied_to=AdaptiveEmbedding(20, 8, (5,))), "`tied_to` must be an embedding with the same voc"),
    (lambda: sampled(tied_to=WordEmbedding(21, 8)), "`tied_to` must be an embedding with the same vocabulary"),
    (lambda: CharCNNSoftmax([*WORDS, ""], 4), "empty word"),
    (lambda: CharCNNSoftmax(WORDS[1:], 4), "`words` must begin with"),
    (lambda: CharCNNSoftmax(WORDS, 4, filters=()), "`filters` must be numbers of filters"),
    (lambda: CharCNNSoftmax(WORDS[:3], 4), "`num_samples` must be from 1 to `vocabulary_size`, 3"),
    (lambda: CharCNNSoftmax(WORDS, 4).for_inference(), "call or build the layer first"),
    (
        lambda: CharLSTMSoftmax([*WORDS, "x" * 51]),
        "`max_bytes` must be at least 51, the number of bytes of 'x.*x': pass more, or make",
    ),
    (
        lambda: CharLSTMSoftmax(WORDS, max_bytes=3),
        "`max_bytes` must be at least 4, the number of bytes of 'then': .* max_bytes=3.",
    ),
    (lambda: CharLSTMSoftmax([*WORDS, ""]), "empty word"),
    (lambda: CharLSTMSoftmax(WORDS[1:]), "`words` must begin with"),
]
POSITIVE = "must both be at least 1; .*"
CONTEXTS = [
    ({"num_local": 0}, "`num_local` must be at least 1, .* Received: num_local=0"),
    ({"num_global": -1}, "`num_global` must be 0 or more. Received: num_global=-1"),
    ({"num_global": 2}, f"{POSITIVE} Received: num_global=2, global_window=None"),
    ({"global_window": 5}, f"{POSITIVE} Received: num_global=0, global_window=5"),
    ({"num_global": 1, "global_window": -2}, f"{POSITIVE} global_window=-2"),
    ({"aggregate": "max"}, r"`aggregate` must be one of \['kernel', 'average'\]. Received: aggregate='max'"),
]
TRANSFORMER = {"num_blocks": 1, "dim": 8, "ffn_dim": 12, "num_heads": 2}
TEXT = zeros(2, 7, 4)
BODIES = [
    *(
        (lambda make=make, options=options: make(**{"num_local": 2, **options}), message)
        for make in (ContextConcatenation, lambda **options: NPLMDecoder(2, 6, **options))
        for options, message in CONTEXTS
    ),
    (lambda: ContextConcatenation(2, hidden_dim=0), "`hidden_dim` must be at least 1, or None. Received: hidden_dim=0"),
    (lambda: NPLMDecoder(0, 6), "`num_layers` must be at least 1. Received: num_layers=0"),
    (lambda: NPLMDecoder(2, -6), "`ffn_dim` must be at least 1. Received: ffn_dim=-6"),
    (lambda: NPLMDecoder(2000, 6), "`num_layers` must be at most 1000"),
    (lambda: NPLMDecoder(2, 6).initial_state(3), "build the body before `initial_state`"),
    (lambda: built(LearnedPositions(6), 3)(zeros(1, 7, 3)), "has learned 6 positions: .* Received: 7 tokens"),
    (lambda: built(LearnedPositions(6), 3)(zeros(1, 2, 3), start=5), "has learned 6 positions: .* Received: 7 tokens"),
    (
        lambda: built(TransformerDecoder([], 8, positions=LearnedPositions(5))).initial_state(1, 6),
        "has learned 5 positions: .* Received: 6 tokens",
    ),
    (lambda: SinusoidalPositions()(zeros(1, 2, 2)), "even dimension of at least 4. Received: dim=2"),
    (lambda: SinusoidalPositions()(zeros(1, 2, 7)), "even dimension of at least 4. Received: dim=7"),
    (
        lambda: TransformerBlock(12, CausalAttention(2), activation="swish"),
        "`activation` must be one of .*'gelu_tanh'.* Received: activation='swish'",
    ),
    (lambda: built(CausalAttention(3)), "`num_heads` must divide the dimension 8. Received: num_heads=3"),
    (lambda: CausalAttention(2, window=0), "`window` must be at least 1, .* Received: window=0"),
    (lambda: RelativeAttention(2, 0), "`memory_length` and `segment_length` must be .* Received: memory_length=0"),
    (lambda: PositionInfusedAttention(2, 3, 0), "must be at least 1. Received: memory_length=3, segment_length=0"),
    (lambda: CausalAttention(2, window=-1), "`window` must be at least 1, .* Received: window=-1"),
    (
        lambda: transformer(**TRANSFORMER).initial_state(1),
        "`length` must be the number of tokens .* Received: length=None",
    ),
    (lambda: lstm(num_layers=0), "`num_layers` must be at least 1. Received: num_layers=0"),
    (lambda: qrnn(num_layers=10**7), "`num_layers` must be at most 1000. Received: num_layers=10000000"),
    (lambda: qrnn(units=0), "`units` must be at least 1"),
    (lambda: lstm(output_dim=-1), "`output_dim` must be at least 1"),
    (lambda: lstm(projection_dim=0), "`projection_dim` must be at least 1, or None"),
    (lambda: lstm(dropout=(0.1, 0.2)), "`dropout` must be one rate, or three"),
    (lambda: lstm(dropout=1.5), "`rate` must be from 0 to 1"),
    (lambda: lstm(weight_dropout=-0.1), "`rate` must be from 0 to 1"),
    (lambda: qrnn(zoneout=2.0), "`rate` must be from 0 to 1"),
    (lambda: qrnn(window=3), "`window` must be 1 or 2. Received: window=3"),
    (lambda: qrnn(penalties=(-1.0, 0.0)), "`strength` must not be negative"),
    (lambda: qrnn(penalties=(0.0, NAN)), "`strength` must not be negative"),
    (
        lambda: qrnn(window=2).initial_state(2),
        "window=2 holds its last input, .*: build the layer before `initial_state`",
    ),
    (
        lambda: built(lstm(1), 4).step(keras.ops.convert_to_tensor(TEXT), lstm(1).initial_state(1)),
        r"`state` must have the shape \(2, 3\) of a batch of 2 rows.*\(1, 3\)",
    ),
]


@pytest.mark.parametrize("call, message", [*INPUTS, *SOFTMAXES, *BODIES])
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


ABSTRACT = [
    (lambda: Input().call([[1]]), "`Input` must implement `call"),
    (lambda: Body().initial_state(1), "Body must implement `initial_state`"),
    (lambda: Body().step(zeros(1, 1, 1), ()), "Body must implement `step`"),
    (lambda: Mixer().initial_state(1, 1, 1), "Mixer must implement `initial_state`"),
    (lambda: Mixer().step(zeros(1, 1, 1), (), 0), "Mixer must implement `step`"),
    (lambda: Nothing().log_probs(TEXT), "`Nothing` does not implement `log_probs`. `AdaptiveSoftmax` does"),
    (lambda: Nothing().nll(TEXT, zeros(2, 7)), "`Nothing` does not implement `nll`. `AdaptiveSoftmax` does"),
]


@pytest.mark.parametrize("call, message", ABSTRACT)
def test_what_a_subclass_must_implement(call, message):
    with pytest.raises(NotImplementedError, match=message):
        call()
