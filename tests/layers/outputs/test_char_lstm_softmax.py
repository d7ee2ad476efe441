"""The LSTM that spells words, against the formula one symbol at a time."""

import keras
import numpy as np
import pytest

from keras_adaptive.layers import CharLSTMSoftmax
from keras_adaptive.ops.map_rows import map_rows
from tests.support import oracle
from tests.support.backends import MODES, runner, weight_gradients
from tests.support.chunks import set_chunk_sizes
from tests.support.weights import built, value

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = [*SPECIAL, "a", "the", "then", "thé", "€", "a\0b"]
DIM = 5
HIDDEN = np.random.default_rng(0).normal(size=(2, 3, DIM)).astype("float32")


@pytest.fixture(autouse=True)
def two_numbers_of_slots(monkeypatch):
    """3 and the longest, to compile less."""
    monkeypatch.setattr("keras_adaptive.layers.outputs.char_lstm_softmax.SLOTS", (3, 40))


def make(words=WORDS, **kwargs):
    return built(CharLSTMSoftmax(words, units=4, char_dim=3, **kwargs), DIM)


def expected(layer, hidden):
    """The log-probabilities (words,) after one hidden state."""
    weights = [value(variable) for variable in layer.trainable_variables]
    spelled = [[257 + id] if id < 4 else [*word.encode(), 256] for id, word in enumerate(layer.words)]
    return np.array([oracle.char_lstm(hidden, symbols, weights) for symbols in spelled])


@pytest.mark.parametrize("mode", MODES)
def test_every_word_has_the_probability_of_its_symbols(mode):
    layer = make()
    truth = np.array([[expected(layer, hidden) for hidden in row] for row in HIDDEN.astype("float64")])
    targets = np.array([[0, 2, 4], [6, 7, 9]], "int32")
    log_probs, nll = runner(lambda h, t: (layer.log_probs(h), layer.nll(h, t)), mode)(HIDDEN, targets)
    np.testing.assert_allclose(log_probs, truth, atol=2e-5)
    np.testing.assert_allclose(nll, -np.take_along_axis(truth, targets[..., None], axis=-1)[..., 0], atol=2e-5)


def test_gradients_of_targets_are_those_of_the_whole_vocabulary(monkeypatch):
    """The loss takes steps through the target, and probabilities through the tree of words, few rows at a time."""
    set_chunk_sizes(monkeypatch, spelled_words=2, tree_rows=2)
    layer, targets = make(), np.array([[5, 2, -1], [6, 7, 4]], "int32")
    weights = np.array([[1.0, 2.0, 1.0], [0.5, 0.0, 3.0]], "float32")

    def of_targets(hidden):
        return layer.training_loss(hidden, keras.ops.convert_to_tensor(targets), weights)

    def of_vocabulary(hidden):
        picked = np.eye(len(WORDS), dtype="float32")[targets] * np.where(targets < 0, 0, weights)[..., None]
        return -keras.ops.sum(layer.log_probs(hidden) * keras.ops.convert_to_tensor(picked))

    variables = layer.trainable_variables
    (total, gradients), (other, others) = (
        weight_gradients(function, variables, [HIDDEN]) for function in (of_targets, of_vocabulary)
    )
    np.testing.assert_allclose(total, other, rtol=1e-5)
    for gradient, again, variable in zip(gradients, others, [*variables, "hidden"], strict=True):
        assert np.abs(gradient).max() > 1e-3, variable
        np.testing.assert_allclose(gradient, again, atol=2e-5, err_msg=str(variable))


def test_probabilities_may_be_divided_by_that_of_all_words():
    layer, targets = make(), np.array([[0, 2, 4], [6, 7, -1]], "int32")
    log_probs, nll, log_normalizer = (np.array(one) for one in runner(of_all(layer))(HIDDEN, targets))
    np.testing.assert_allclose(log_normalizer, np.log(np.exp(log_probs).sum(axis=-1)), atol=1e-5)
    assert np.all(log_normalizer < -0.1)
    layer.normalized = True
    again, divided, _ = runner(of_all(layer))(HIDDEN, targets)
    np.testing.assert_allclose(again, log_probs - log_normalizer[..., None], atol=1e-5)
    np.testing.assert_allclose(divided, np.where(targets < 0, 0, nll + log_normalizer), atol=1e-5)
    assert CharLSTMSoftmax.from_config(layer.get_config()).normalized


def of_all(layer):
    return lambda hidden, targets: (layer.log_probs(hidden), layer.nll(hidden, targets), layer.log_normalizer(hidden))


def test_a_target_takes_the_steps_of_its_length(monkeypatch):
    """Rows of no weight and targets outside the vocabulary take none."""
    layer, seen = make(), {}

    def counting(cases, inputs, weights, width):
        for function, active, _ in cases:
            seen[function.keywords["slots"]] = int(keras.ops.sum(keras.ops.cast(active, "int32")))
        return map_rows(cases, inputs, weights, width)

    monkeypatch.setattr("keras_adaptive.layers.outputs.char_lstm_softmax.map_rows", counting)
    weights = np.array([[1, 1, 1], [1, 1, 0]], "float32")
    layer.total_nll(HIDDEN, np.array([[2, 4, 5], [8, 10, 8]]), weights)
    assert seen == {3: 2, 5: 2}


@pytest.mark.once
def test_prefixes_are_computed_once():
    levels, _ = make()._tree
    assert [len(level.branches) for level in levels] == [3, 3, 4, 2, 0]  # of the six words that are spelled
    assert sum(len(level.ends) for level in levels) == len(WORDS)


def test_a_vocabulary_of_special_words():
    layer = make(SPECIAL)
    np.testing.assert_allclose(runner(layer.log_probs)(HIDDEN[0, :1])[0], expected(layer, HIDDEN[0, 0]), atol=2e-5)


@pytest.mark.once
def test_the_published_size():
    """Jozefowicz et al. 2016, table 1: 0.23 billion parameters, of which 222.9 million are before the output."""
    with keras.StatelessScope(initialize_variables=False):
        layer = CharLSTMSoftmax(WORDS, char_dim=16)
        layer.build((None, 1024))
    assert layer.count_params() == 8_729_877
    assert round((layer.count_params() + 71_790_128 + 2 * 75_530_240) / 1e9, 2) == 0.23
