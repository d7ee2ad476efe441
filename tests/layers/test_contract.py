"""Every layer keeps the contract of Keras' layers. A new layer is one more line of LAYERS, a body one of BODIES."""

from functools import partial

import keras
import numpy as np
import pytest

from keras_adaptive import layers
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.layer_normalization import LayerNormalization
from keras_adaptive.losses import NCE
from tests.support.layer_checks import check_layer

pytestmark = pytest.mark.usefixtures("one_number_of_slots")

WORDS = ["<s>", "<pad>", "</s>", "<unk>", "the", "cat", "incredible"]
CHARACTERS = {"char_dim": 4, "filters": (3, 4), "max_bytes": 8}
MARKED = {**CHARACTERS, "word_markers": True}
IDS = np.array([[0, 1, 2, 3], [4, 5, 6, 6]], "int32")
VECTORS = np.random.default_rng(0).normal(size=(2, 4, 8)).astype("float32")
LAYERS = {
    "ActivationRegularization": partial(layers.ActivationRegularization, 2.0),
    "AdaptiveEmbedding": partial(layers.AdaptiveEmbedding, 7, 8, (2, 4), factor=2, output_dim=6),
    "AdaptiveSoftmax": partial(layers.AdaptiveSoftmax, 20, (5, 12), factor=2),
    "AdaptiveSoftmax, plain": partial(layers.AdaptiveSoftmax, 20, ()),
    "AdaptiveSoftmax, one table": partial(layers.AdaptiveSoftmax, 20, (5, 12), factor=None, use_bias=True),
    "AdaptiveSoftmax, projected head": partial(
        layers.AdaptiveSoftmax, 20, (5, 12), factor=2, tie_projections=(False, False, False)
    ),
    "SampledSoftmax": partial(layers.SampledSoftmax, 20, 5, counts=range(20), seed=1),
    "CausalAttention": partial(layers.CausalAttention, 2),
    "CausalAttention, windowed": partial(layers.CausalAttention, 2, window=3, use_bias=False),
    "CharCNN": partial(layers.CharCNN, WORDS, 6, **CHARACTERS),
    "CharCNN, own padding": partial(layers.CharCNN, WORDS, 6, highways=2, zero_padding=False, **MARKED),
    "CharCNNSoftmax": partial(layers.CharCNNSoftmax, WORDS, NCE(3, seed=1), correction_dim=3, **MARKED),
    "CharLSTMSoftmax": partial(layers.CharLSTMSoftmax, [*WORDS[:4], "a", "ab"], units=3, char_dim=4),
    "ContextConcatenation": partial(layers.ContextConcatenation, 2, num_global=2, global_window=2, hidden_dim=5),
    "FlatDense": partial(FlatDense, 5, activation="tanh"),
    "LayerNormalization": LayerNormalization,
    "LearnedPositions": partial(layers.LearnedPositions, 5),
    "LinearCrossEntropy": lambda **kwargs: layers.LinearCrossEntropy(tied_to=keras.layers.Dense(20), **kwargs),
    "SinusoidalPositions": layers.SinusoidalPositions,
    "PositionInfusedAttention": partial(layers.PositionInfusedAttention, 2, 3, 2),
    "RelativeAttention": partial(layers.RelativeAttention, 2, 3, segment_length=2, clamp_length=2, attend_empty=True),
    "SeededDropout": partial(layers.SeededDropout, 0.5),
    "TemporalActivationRegularization": partial(layers.TemporalActivationRegularization, 2.0),
    "TransformerBlock": lambda **kwargs: layers.TransformerBlock(12, layers.CausalAttention(2, **kwargs), **kwargs),
    "TransformerBlock, without a mixer": partial(layers.TransformerBlock, 12),
    "VariationalDropout": partial(layers.VariationalDropout, 0.5),
    "WeightDrop": partial(layers.WeightDrop, 0.5),
    "WordEmbedding": partial(layers.WordEmbedding, 7, 6),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_keeps_the_contract(make, tmp_path):
    check_layer(make, IDS if isinstance(make(), layers.Input) else VECTORS, tmp_path)


CONTEXT = {"num_global": 2, "global_window": 4, "aggregate": "average", "hidden_dim": 5, "normalize": False}
TIED = {"tied_to": layers.AdaptiveEmbedding(20, 8, (5, 12), factor=2), "tail_dropout": 0.1}
OPTIONS = [  # which other tests of configurations leave at their defaults
    (layers.WordEmbedding, (9, 4), {"embedding_dropout": 0.2}),
    (layers.LearnedPositions, (6,), {"first_position": 0}),
    (layers.ContextConcatenation, (3,), {**CONTEXT, "dropout": 0.1}),
    (layers.AdaptiveSoftmax, (20, (5, 12)), TIED),
    (layers.AdaptiveSoftmax, (20, (5, 12)), {**TIED, "tie_projections": (False, True, False), "use_bias": True}),
    (layers.AdaptiveSoftmax, (20, (5, 12, 19)), {"factor": None, "use_bias": True, "tail_dropout": 0.1}),
    (layers.AdaptiveSoftmax, (20, (5, 12)), {**TIED, "tied_to": layers.WordEmbedding(20, 8)}),
    (layers.SampledSoftmax, (20, 6), {"seed": 3, "loss": "nce", "use_bias": False, "input_dropout": 0.5}),
]


@pytest.mark.parametrize("make, sizes, options", OPTIONS)
@pytest.mark.once
def test_a_configuration_keeps_every_option(make, sizes, options):
    layer = make(*sizes, **options)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    config = copy.get_config()
    assert type(copy) is make and config == layer.get_config()
    for name, option in options.items():
        if name == "tied_to":
            assert type(copy.tied_to) is type(option) and copy.tied_to.get_config() == option.get_config()
        else:
            assert config[name] == option


@pytest.mark.once
def test_every_layer_is_here():
    contracts = {"Input", "Body", "Mixer", "Output"}
    bodies = {
        name for name, layer in vars(layers).items() if isinstance(layer, type) and issubclass(layer, layers.Body)
    }
    public = {name for name in vars(layers) if name[0].isupper()} - bodies  # tests/layers/bodies checks these
    # The first two, of other arguments and results, are checked in outputs and regularization. The last is no layer.
    elsewhere = {"AdaptiveRetrieval", "EmbeddingDropout", "RecurrentDropout"}
    assert public - contracts - elsewhere <= {name.split(",")[0] for name in LAYERS}
