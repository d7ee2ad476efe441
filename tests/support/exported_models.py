"""Models of every part and of every option that exports treat apart, and models that they refuse."""

from functools import partial

import numpy as np

from keras_adaptive.data import TextCodec, Vocabulary
from keras_adaptive.layers import (
    AdaptiveSoftmax,
    CausalAttention,
    LearnedPositions,
    TransformerBlock,
    TransformerDecoder,
)
from keras_adaptive.losses import CrossEntropy
from keras_adaptive.models import Ensemble
from keras_adaptive.models.constructors import assemble
from tests.support.tiny import VOCABULARY, WORDS, language_model
from tests.support.weights import randomize
from tests.support.word_parts import inputs, outputs
from trainers.experiments.parts import PARTS

CODEC = TextCodec(Vocabulary(WORDS, [0] * VOCABULARY))
DIM, CUTOFFS, LENGTH = 8, (8, 14), 11
SIZES = {"num_blocks": 2, "dim": DIM, "ffn_dim": 12, "num_heads": 2}
CONTEXT = {"num_local": 3, "num_global": 2, "global_window": 3}
BODIES = {  # name: hyper-parameters of the body of this name
    "transformer": {**SIZES, "output_dim": 6},
    "transformer alibi": {**SIZES, "num_heads": 2, "positions": "alibi"},
    "hybrid": {**SIZES, **CONTEXT, "attention_window": 4, "keep_attention": True},
    "nplm": {**CONTEXT, "num_layers": 3, "ffn_dim": 12, "aggregate": "average", "concatenation_dim": 6},
    "shortformer": {**SIZES, "memory_length": 3, "segment_length": 4},
    "transformer_xl": {**SIZES, "memory_length": 3, "bptt": 4, "same_length": False},
    "transformer_xl windows": {**SIZES, "memory_length": 4, "bptt": 4, "same_length": True},
    "lstm": {"num_layers": 2, "units": 10, "output_dim": DIM},
    "lstm projected": {"num_layers": 2, "units": 10, "output_dim": DIM, "projection_dim": 6},
    "qrnn": {"num_layers": 2, "units": 10, "output_dim": DIM, "window": 2, "zoneout": 0.2},
}
INPUTS, OUTPUTS = inputs(WORDS, DIM, CUTOFFS), outputs(WORDS, DIM, CUTOFFS)
NAMES = {"adaptive": "adaptive", "word": "word", "char_cnn": "CNN of characters", "softmax": "plain"}
NAMES |= {"sampled": "sampled", "char_lstm": "LSTM of characters"}


def make_body(name):
    return partial(PARTS["body"][name.split()[0]].make, **BODIES[name])


def learned(name, dtype):
    """A body with all that converted models have and no flag makes."""
    blocks = [TransformerBlock(12, CausalAttention(2), activation="gelu") for _ in range(2)]
    norms = {"input_norm": True, "final_norm": True}
    return TransformerDecoder(blocks, DIM, positions=LearnedPositions(20), scale_input=False, **norms, name=name)


def model_of(make_input, body, make_output, tied=False):
    model = assemble(make_input, body, make_output, tied=tied)
    model.log_probs(np.zeros((1, 2), "int32"))  # builds it
    return randomize(model)


TRANSFORMER, HEAD = make_body("transformer"), partial(AdaptiveSoftmax, VOCABULARY, CUTOFFS, factor=2)
PLAIN = partial(AdaptiveSoftmax, VOCABULARY, ())
MODELS = {
    **{f"body {name}": partial(model_of, INPUTS["word"], make_body(name), PLAIN) for name in BODIES},
    **{f"input {name}": partial(model_of, INPUTS[NAMES[name]], TRANSFORMER, PLAIN) for name in PARTS["input"]},
    **{
        f"output {name}": partial(model_of, INPUTS["word"], TRANSFORMER, OUTPUTS[NAMES[name]])
        for name in PARTS["output"]
    },
    "learned positions": partial(model_of, INPUTS["word"], learned, PLAIN),
    "tied, head projected": partial(
        model_of,
        INPUTS["adaptive"],
        make_body("nplm"),
        partial(HEAD, tie_projections=(False, True, False), use_bias=True),
        True,
    ),
    "tied bands of a table": partial(model_of, INPUTS["word"], make_body("lstm"), partial(HEAD, use_bias=True), True),
    "tied to another embedding": partial(model_of, INPUTS["word"], make_body("lstm"), OUTPUTS["adaptive, tied"], False),
    "soft cap": partial(model_of, INPUTS["word"], TRANSFORMER, partial(HEAD, loss=CrossEntropy(soft_cap=2.0))),
}
REFUSED = {"output char_lstm"}
REFUSED_BY_LITERT = {"body qrnn"}


def refused_models():
    """Returns pairs of a model that exports of layers refuse, and what the error calls its part."""

    class Halved(CausalAttention):
        def call(self, x, training=None):
            return super().call(x, training) / 2

    blocks = [TransformerBlock(12, Halved(2))]
    subclass = model_of(INPUTS["word"], lambda **kwargs: TransformerDecoder(blocks, DIM), PLAIN)
    return (
        (MODELS["output char_lstm"](), "the output CharLSTMSoftmax"),
        (subclass, "the mixing layer Halved"),
        (Ensemble([language_model(), language_model()]), "the model Ensemble"),
    )
