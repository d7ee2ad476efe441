"""Every layer keeps the contract of Keras' layers. A new layer is one more line of LAYERS, a body one of BODIES."""

from functools import partial

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
IDS = np.array([[0, 1, 2, 3], [4, 5, 6, 6]], "int32")
VECTORS = np.random.default_rng(0).normal(size=(2, 4, 8)).astype("float32")
LAYERS = {  # how it is made, what it is called with
    "ActivationRegularization": (partial(layers.ActivationRegularization, 2.0), VECTORS),
    "AdaptiveEmbedding": (partial(layers.AdaptiveEmbedding, 7, 8, (2, 4), factor=2, output_dim=6), IDS),
    "AdaptiveSoftmax": (partial(layers.AdaptiveSoftmax, 20, (5, 12), factor=2), VECTORS, "float32"),
    "AdaptiveSoftmax, plain": (partial(layers.AdaptiveSoftmax, 20, ()), VECTORS, "float32"),
    "AdaptiveSoftmax, one table": (
        partial(layers.AdaptiveSoftmax, 20, (5, 12), factor=None, use_bias=True),
        VECTORS,
        "float32",
    ),
    "SampledSoftmax": (partial(layers.SampledSoftmax, 20, 5, counts=range(20), seed=1), VECTORS, "float32"),
    "CausalAttention": (partial(layers.CausalAttention, 2), VECTORS),
    "CausalAttention, windowed": (partial(layers.CausalAttention, 2, window=3, use_bias=False), VECTORS),
    "CharCNN": (partial(layers.CharCNN, WORDS, 6, **CHARACTERS), IDS),
    "CharCNN, own padding": (
        partial(layers.CharCNN, WORDS, 6, highways=2, zero_padding=False, word_markers=True, **CHARACTERS),
        IDS,
    ),
    "CharCNNSoftmax": (
        partial(layers.CharCNNSoftmax, WORDS, NCE(3, seed=1), correction_dim=3, word_markers=True, **CHARACTERS),
        VECTORS,
        "float32",
    ),
    "CharLSTMSoftmax": (
        partial(layers.CharLSTMSoftmax, [*WORDS[:4], "a", "ab"], units=3, char_dim=4),
        VECTORS,
        "float32",
    ),
    "ContextConcatenation": (
        partial(layers.ContextConcatenation, 2, num_global=2, global_window=2, hidden_dim=5),
        VECTORS,
    ),
    "FlatDense": (partial(FlatDense, 5, activation="tanh"), VECTORS),
    "LayerNormalization": (LayerNormalization, VECTORS),
    "LearnedPositions": (partial(layers.LearnedPositions, 5), VECTORS),
    "SinusoidalPositions": (layers.SinusoidalPositions, VECTORS),
    "SeededDropout": (partial(layers.SeededDropout, 0.5), VECTORS),
    "TemporalActivationRegularization": (partial(layers.TemporalActivationRegularization, 2.0), VECTORS),
    "TransformerBlock": (lambda **kw: layers.TransformerBlock(12, layers.CausalAttention(2, **kw), **kw), VECTORS),
    "TransformerBlock, without a mixer": (partial(layers.TransformerBlock, 12), VECTORS),
    "VariationalDropout": (partial(layers.VariationalDropout, 0.5), VECTORS),
    "WeightDrop": (partial(layers.WeightDrop, 0.5), VECTORS),
    "WordEmbedding": (partial(layers.WordEmbedding, 7, 6), IDS),
}


@pytest.mark.parametrize("name", LAYERS)
def test_keeps_the_contract(name, tmp_path):
    make, inputs, *output_dtype = LAYERS[name]
    check_layer(make, inputs, tmp_path, *output_dtype)


@pytest.mark.once
def test_every_layer_is_here():
    contracts = {"Input", "Body", "Mixer", "Output"}
    bodies = {
        name for name, layer in vars(layers).items() if isinstance(layer, type) and issubclass(layer, layers.Body)
    }
    public = {name for name in vars(layers) if name[0].isupper()} - bodies  # tests/layers/bodies checks these
    # The first takes vectors and ids: tests/layers/regularization checks it. The second is no layer.
    elsewhere = {"EmbeddingDropout", "RecurrentDropout"}
    assert public - contracts - elsewhere <= {name.split(",")[0] for name in LAYERS}
