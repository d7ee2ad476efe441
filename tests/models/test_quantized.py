"""Models in 8 and 4 bits against the same models in floats, whose matrices are rounded by hand."""

import keras
import numpy as np
import pytest

from keras_adaptive.export.parts import parts_of
from keras_adaptive.layers import AdaptiveSoftmax, LSTMDecoder, QRNNDecoder, WordEmbedding
from keras_adaptive.layers.bodies.body import Body
from keras_adaptive.models import LanguageModel
from keras_adaptive.models.model_file import read_language_model
from keras_adaptive.ops.quantized_matrix import quantize
from tests.support.backends import numpy
from tests.support.refusals import refused
from tests.support.tiny import VOCABULARY, compiled, language_model, system
from tests.support.weights import randomize

IDS = np.random.default_rng(0).integers(0, VOCABULARY, (2, 7))
pytestmark = pytest.mark.usefixtures("eager_predictions")
TOKENS, TARGETS = IDS[:, :-1], IDS[:, 1:]
FLOATS = ("gamma", "beta", "bias", "class_bias")  # what stays


def recurrent(make_body, **kwargs):
    words, body = WordEmbedding(VOCABULARY, 6), make_body(2, 5, 8, **kwargs)
    return randomize(LanguageModel(words, body, AdaptiveSoftmax(VOCABULARY, (5,), factor=2)))


MODELS = {
    "adaptive, tied": lambda: language_model(dropout=0.1),
    "one table, tied, biases": lambda: system("ASM-T"),
    "lstm": lambda: recurrent(LSTMDecoder, projection_dim=6),
    "qrnn": lambda: recurrent(QRNNDecoder, window=2),
}


def rounded(array, bits, block):
    """Rounds values by a loop over blocks of columns: the definition."""
    result, largest = np.zeros_like(array), 2 ** (bits - 1) - 1
    for row in range(len(array)):
        for start in range(0, array.shape[1], block):
            values = array[row, start : start + block]
            scale = np.float32(np.float16(np.abs(values).max() / largest))
            result[row, start : start + block] = scale * np.clip(np.round(values / scale), -largest, largest)
    return result


def pair(name, mode, block):
    """Returns a quantized model, and a model in floats with the same weights, rounded."""
    model, expected = MODELS[name](), MODELS[name]()
    for new, old in zip(expected.weights, model.weights, strict=True):
        new.assign(old.value)
    floats = [variable for variable in expected.weights if variable.name not in FLOATS]
    for variable in floats:
        variable.assign(rounded(numpy(variable), int(mode[-1]), block or variable.shape[1]))
    config = keras.quantizers.Int4QuantizationConfig(block_size=block) if block else None
    model.quantize(mode, config)
    assert sum(variable.dtype == "int8" for variable in model.weights) == len(floats)
    return model, expected


@pytest.mark.parametrize("name, mode, block", [*((name, "int8", None) for name in MODELS), ("lstm", "int4", 3)])
def test_predictions_are_exact_for_rounded_weights(name, mode, block):
    model, expected = pair(name, mode, block)
    np.testing.assert_allclose(numpy(model.log_probs(TOKENS)), numpy(expected.log_probs(TOKENS)), atol=1e-5)
    np.testing.assert_allclose(model.nll(TOKENS, TARGETS), expected.nll(TOKENS, TARGETS), atol=1e-5)


def test_files_and_all_predictions(tmp_path):
    model, expected = pair("adaptive, tied", "int4", 3)
    model.save(tmp_path / "model.keras")
    for loaded in (read_language_model(tmp_path / "model.keras"), keras.saving.load_model(tmp_path / "model.keras")):
        np.testing.assert_allclose(numpy(loaded.log_probs(TOKENS)), numpy(expected.log_probs(TOKENS)), atol=1e-5)
    for one, other in zip(loaded.next_words(TOKENS, 6), expected.next_words(TOKENS, 6)):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert (loaded.generate(TOKENS, 5, seed=1) == expected.generate(TOKENS, 5, seed=1)).all()
    losses = [compiled(each).evaluate(TOKENS, TARGETS, verbose=0) for each in (loaded, expected)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.once
def test_values_too_small_for_a_scale_are_zero():
    values, scales = quantize(np.array([[1e-9, -1e-9], [0.0, 0.0], [1.0, -2.0]], "float32"), 8, 2)
    assert values.tolist() == [[0, 0], [0, 0], [64, -127]] and scales[:2].tolist() == [[0], [0]]


@pytest.mark.once
def test_bad_arguments_and_models_are_refused():
    model = language_model()
    refused(model.quantize, "float8", match=r"`mode` must be one of \['int8', 'int4'\]. Received: mode='float8'")
    refused(model.quantize, "int8", filters="body", match="`mode` and `config` only. Received: filters")
    own = keras.quantizers.Int8QuantizationConfig(keras.quantizers.AbsMaxQuantizer(axis=0))
    refused(model.quantize, config=own, match="no `weight_quantizer`")
    refused(system("CNN").quantize, "int8", match=r"`model.for_inference\(\)` .* Received: a CharCNN")

    class Own(Body):
        def build(self, shape):
            self.dense = keras.layers.Dense(4)
            self.dense.build(shape)

        def call(self, x, training=None):
            return self.dense(x)

    other = LanguageModel(WordEmbedding(VOCABULARY, 4), Own(), AdaptiveSoftmax(VOCABULARY, ()))
    refused(other.quantize, "int8", match="Received: a Dense in a Own")
    model.quantize("int8")
    refused(model.quantize, "int4", match="`quantize` needs weights in floats")
    refused(parts_of, model, match="This export needs weights in floats")


def test_training_is_refused():
    model = compiled(language_model())
    model.quantize("int8")
    for method in (model.fit, model.train_on_batch):
        refused(method, TOKENS, TARGETS, match="Training needs weights in floats.* Received: a .* in int8")
