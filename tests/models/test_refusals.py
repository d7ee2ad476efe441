"""What the models, and the functions that make and read them, refuse whatever the backend."""

import keras
import numpy as np
import pytest

from keras_adaptive.layers import CausalAttention, LearnedPositions, LSTMDecoder, TransformerBlock, TransformerDecoder
from keras_adaptive.metrics import HitRate, Perplexity
from keras_adaptive.models import Ensemble, LanguageModel, hybrid_transformer, transformer_lm
from keras_adaptive.models.reading import reading_of
from keras_adaptive.optimizers import NAG
from tests.support.refusals import refused
from tests.support.streams import stream_model
from tests.support.tiny import VOCABULARY, batch, compiled, language_model, word_model

pytestmark = pytest.mark.once

TOKENS, TARGETS, _ = batch(3)
NAN = float("nan")
ACCUMULATES = keras.optimizers.SGD(0.5, gradient_accumulation_steps=4)


@pytest.fixture(scope="module")
def model():
    return language_model()


LENGTH = "`length`, the number of words to add, must be at least 1. Received: length=0"
DRAWN = "`temperature` must not be negative and `top_k` must be at least 1"
SAMPLERS = [  # the sampler, the argument that it contradicts, and a value
    ("greedy", "temperature", 0.5),
    ("greedy", "top_k", 3),
    ("greedy", "top_p", 0.5),
    ("random", "temperature", 0),
    ("random", "top_k", 3),
    ("random", "top_p", 0.5),
    ("top_k", "top_p", 0.5),
    ("top_p", "top_k", 3),
]
GENERATION = [
    ({"length": 0}, LENGTH),
    ({"top_k": 0}, f"{DRAWN}. Received: .* top_k=0"),
    ({"temperature": -0.1}, DRAWN),
    ({"temperature": NAN}, DRAWN),
    ({"top_p": 0}, "`top_p` must be above 0 and at most 1. Received: top_p=0"),
    ({"top_p": 1.1}, "Received: top_p=1.1"),
    ({"stop": VOCABULARY}, "`stop` must hold ids from 0 to 19. Received: stop=20"),
    ({"stop": [1, -1]}, "`stop` must hold ids"),
    ({"forbid": [VOCABULARY]}, "`forbid` must hold ids from 0 to 19. Received: forbid=.20."),
    ({"forbid": [0.5]}, "`forbid` must hold ids"),
    ({"forbid": range(VOCABULARY)}, "`forbid` must leave a word to draw"),
    ({"repetition_penalty": 0.5}, "`repetition_penalty` must be a finite number of at least 1"),
    ({"repetition_penalty": NAN}, "`repetition_penalty` must be"),
    ({"sampler": "best"}, "one of greedy, random, top_k, top_p, beam, contrastive.* Received: sampler='best'"),
    *(
        ({"sampler": sampler, name: value}, f"sampler '{sampler}' contradicts `{name}`: leave .*{name}={value}")
        for sampler, name, value in SAMPLERS
    ),
    ({"sampler": "beam", "top_p": 0.5}, "leave out .* Received: 1.0, None, 0.5, None"),
    ({"prompt": np.zeros((1, 0), "int32")}, r"`prompt` must have shape \(batch, length\) and not be empty. Received: "),
    ({"prompt": np.zeros(3, "int32")}, r"`prompt` must have shape \(batch, length\) and not be empty. Received: "),
]


@pytest.mark.parametrize("arguments, message", GENERATION, ids=str)
def test_generation(model, arguments, message):
    refused(model.generate, **{"prompt": TOKENS, "length": 2, **arguments}, match=message)


def test_texts_and_their_segments(model):
    refused(model.stream, TOKENS, length=0, match=LENGTH)
    segments = lambda tokens, targets: next(stream_model().nll_of_segments([(tokens, targets)], 3))  # noqa: E731
    for method, others in ((model.nll, ()), (model.score, ()), (model.alternatives, (2,))):
        for segment in (0, -1):
            message = f"`segment` must be at least 1 token. Received: segment={segment}"
            refused(method, TOKENS, TARGETS, *others, segment=segment, match=message)
    for method in (model.nll, model.score, segments):
        for wrong in (TARGETS[:2], TARGETS[:, 1:]):
            message = r"`targets` must have the shape \(3, 6\) of `tokens`. Received: "
            refused(method, TOKENS, wrong, match=message)
    recurrent = stream_model()
    message = "must have one row per row .* a state of 3 rows, a batch of 4. Pass `init"
    refused(recurrent.call, batch(4)[0], state=recurrent.body.initial_state(3), match=message)


COMPILE = [
    (language_model, {"loss": "mse"}, "leave out `loss`"),
    (
        language_model,
        {"metrics": ["accuracy"]},
        "must be metrics of ranks, such as ",
    ),
    (
        language_model,
        {"metrics": [HitRate(1)], "exclude_input": "history"},
        r"one of the inputs of the model, \['tokens'\]",
    ),
    (language_model, {"weighted_metrics": ["accuracy"]}, "leave out `weighted_metrics`"),
    (language_model, {"optimizer": ACCUMULATES}, "make the batch as large as the update, and pass `micro_batches`"),
    (word_model, {"loss": "mse"}, "leave out `loss`. Received: loss=mse"),
    (word_model, {"metrics": ["mse"]}, "A `WordModel` takes 'accuracy' too"),
    (word_model, {"metrics": [Perplexity()]}, "the perplexity is always reported"),
    (word_model, {"weighted_metrics": ["accuracy"]}, "leave out `weighted_metrics`"),
    (word_model, {"optimizer": ACCUMULATES}, "pass `micro_batches` to `compile`"),
]


@pytest.mark.parametrize("make, arguments, message", COMPILE)
def test_compile(make, arguments, message):
    refused(make().compile, **{"optimizer": "sgd", **arguments}, match=message)


def test_a_clip_that_clips_nothing():
    model = language_model()
    model.body.trainable = False
    message = r"`clip_parts` must have a part that is trained: .*all of which are frozen"
    refused(model.compile, NAG(1.0, global_clipnorm=0.1), clip_parts=("body",), match=message)
    model.compile(NAG(1.0), clip_parts=("body",))  # without a bound nothing is clipped
    model.compile(NAG(1.0, global_clipnorm=0.1), clip_parts=("body", "word_input"))


@pytest.mark.parametrize(
    "make, message", [(language_model, "`class_weight` is not available"), (word_model, "pass `sample_weight`")]
)
def test_class_weights(make, message):
    model = compiled(make())
    for method in (model.fit, model.train_on_batch):
        refused(method, TOKENS, TARGETS, class_weight={0: 1.0}, match=message)
    if make is word_model:
        refused(model.train_on_batch, TOKENS, TARGETS, None, {0: 1.0}, match=message)


def test_what_keras_offers_other_models(model):
    refused(Ensemble([model]).compile, "adam", error=NotImplementedError, match="compile and train its members")
    refused(transformer_lm, 20, 8, error=TypeError, match="positional argument")


def test_members_of_an_ensemble(model):
    other = language_model(VOCABULARY + 1)
    for members, message in (
        ([model, other], r"must have one vocabulary. Received: `models\[0\]` with 20 .*`models\[1\]`"),
        ([], "at least one model"),
        ([LSTMDecoder(1, 6, 4)], "must be `LanguageModel`s. Received: LSTMDecoder"),
    ):
        refused(Ensemble, members, match=message)
    refused(Ensemble, [model, model], [1.0], match="`weights` must be 2 numbers")


HYBRID = [
    ({"num_global": 1}, "belong to a concatenation: pass a `num_local` of at least 1. .* num_global=1"),
    ({"attention_window": 0}, "belong to a concatenation: .* attention_window=0"),
    ({"positions": "rotary"}, "must be one of sinusoidal, alibi. Received: positions='rotary'"),
    ({"attention_window": -1}, "`window` must be at least 1.* Received: window=-1"),
    ({"num_local": -1}, "num_local"),
    ({"num_local": 2, "num_global": 1}, "global_window"),
    ({"num_local": 2, "global_window": 3}, "num_global"),
]


@pytest.mark.parametrize("arguments, message", HYBRID)
def test_hybrids_without_sense(arguments, message):
    refused(hybrid_transformer, num_blocks=2, dim=8, ffn_dim=12, num_heads=2, **arguments, match=message)


READING = [
    ({"window": 0}, "`window` must be a whole number of at least 1"),
    ({"window": 2.5}, "`window` must be .* Received: window=2.5"),
    ({"window": 11}, "at most 10, the number of learned positions"),
    ({"context": 10}, "`context` must be a whole number from 0 to 9, below the window. Received: context=10"),
    ({"window": 4, "context": -1}, "`context` must be a whole number from 0 to 3"),
]


def test_windows_and_contexts_out_of_range(model):
    body = TransformerDecoder([TransformerBlock(12, CausalAttention(2))], 8, positions=LearnedPositions(10))
    learned = LanguageModel(model.word_input, body, model.word_output)
    for how, message in READING:
        refused(reading_of, learned, **how, match=message)
    message = "`context` belongs to windows, and this body reads a text as a whole"
    refused(reading_of, stream_model(), context=4, match=message)
