"""What every output must do, whatever it is made of. A new output is one more line of tests/support/word_parts.py.

All relations are about one output's own log-probabilities, which the tests of each output compare with an oracle.
"""

from typing import NamedTuple

import numpy as np
import pytest
from keras import ops

from keras_adaptive import layers
from keras_adaptive.layers import CharCNNSoftmax, CharLSTMSoftmax, Output, SampledSoftmax
from tests.support.backends import BACKEND, runner
from tests.support.draws import check_draws
from tests.support.weights import built
from tests.support.word_parts import outputs

VOCABULARY, DIM, CUTOFFS = 20, 8, (5, 9, 15)
K, DRAWS = 8, 20_000
EVERY = np.arange(VOCABULARY, dtype="int32")
TARGETS = np.array([[0, 4, 5, 8, 9], [14, 15, 19, -1, VOCABULARY]], "int32")  # of all bands, and outside of them
WEIGHTS = np.linspace(0, 2, 10, dtype="float32").reshape(2, 5)
INSIDE = (TARGETS >= 0) & (TARGETS < VOCABULARY)
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijkl", "ab", "ba", "é", "ca"]

OUTPUTS = outputs(WORDS, DIM, CUTOFFS)
SAMPLED = {SampledSoftmax, CharCNNSoftmax}  # their training loss is no sum over the vocabulary


class Case(NamedTuple):
    layer: Output
    log_probs: np.ndarray  # of the hidden states, (2, 5, vocabulary)
    found: dict  # what the other methods return


@pytest.fixture(scope="module", params=OUTPUTS)
def output(request, one_number_of_slots):
    """All methods in one function, which compiles once."""
    random = np.random.default_rng(1)
    hidden, uniform = random.normal(size=(2, 5, DIM)).astype("float32"), random.random((2, DRAWS)).astype("float32")
    layer = built(OUTPUTS[request.param](dtype="float32"), DIM)
    if isinstance(layer, CharLSTMSoftmax):
        layer.logits_bias.assign(likely_words())

    def methods(hidden, uniform, targets, weights, every):
        rows = ops.reshape(hidden, (-1, DIM))
        alike = ops.repeat(rows[:1], VOCABULARY, axis=0)
        return {
            "log_probs": layer.log_probs(hidden),
            "nll": layer.nll(hidden, targets),
            "training_loss": layer.training_loss(hidden, targets, weights, training=type(layer) not in SAMPLED),
            "score": layer.score(ops.concatenate([alike, rows]), ops.concatenate([every, ops.reshape(targets, [-1])])),
            "top_k": layer.top_k(hidden, K),
            "drawn": layer.sample_from_uniform(ops.repeat(rows[:1], DRAWS, axis=0), uniform),
        }

    found = runner(methods)(hidden, uniform, TARGETS, WEIGHTS, EVERY)
    return Case(layer, found.pop("log_probs"), found)


def test_it_is_an_output(output):
    assert isinstance(output.layer, Output)
    assert output.layer.vocabulary_size == output.layer.boundaries[-1] == VOCABULARY
    assert output.log_probs.shape == (*TARGETS.shape, VOCABULARY) and output.log_probs.dtype == "float32"
    np.testing.assert_allclose(np.exp(output.log_probs).sum(axis=-1), 1.0, atol=1e-5)


def test_the_nll_of_targets_is_minus_their_log_probability(output):
    assert output.found["nll"].dtype == "float32"
    np.testing.assert_allclose(output.found["nll"], nll(output.log_probs), atol=5e-6)


def test_the_training_loss_is_a_weighted_sum(output):
    """The sum has no dropout, and targets outside the vocabulary add nothing."""
    expected = np.sum(WEIGHTS * nll(output.log_probs))
    np.testing.assert_allclose(output.found["training_loss"], expected, atol=5e-5)


def test_scores_are_log_probabilities_and_ranks(output):
    """Scores every word after the first hidden state, and all targets."""
    log_probs, ranks = output.found["score"]
    expected = np.concatenate([output.log_probs[0, 0], -nll(output.log_probs).ravel()])
    np.testing.assert_allclose(log_probs, expected, atol=5e-6)
    places = np.argsort(np.argsort(-output.log_probs, axis=-1), axis=-1) + 1
    expected = np.concatenate([places[0, 0], np.where(INSIDE, at_targets(places), 1).ravel()])
    np.testing.assert_array_equal(ranks, expected)


def test_the_best_words_are_the_best_of_all(output):
    log_probs, ids = output.found["top_k"]
    order = np.argsort(-output.log_probs, axis=-1)[..., :K]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(log_probs, np.take_along_axis(output.log_probs, order, axis=-1), atol=5e-6)


def test_words_are_drawn_by_their_probabilities(output):
    check_draws(output.found["drawn"], np.exp(output.log_probs[0, 0].astype("float64")))


def likely_words():
    """Biases of the symbols by which each of `WORDS` is drawn a few times."""
    biases = np.full(261, -9.0, "float32")
    biases[[*"".join(WORDS[4:]).encode(), 257, 258, 259, 260]] = 0.0
    biases[256] = 3.0
    return biases


def at_targets(values):
    return np.take_along_axis(values, np.where(INSIDE, TARGETS, 0)[..., None], axis=-1)[..., 0]


def nll(log_probs):
    return np.where(INSIDE, -at_targets(log_probs), 0.0)


@pytest.mark.once
def test_every_output_is_here():
    public = {layer for layer in vars(layers).values() if isinstance(layer, type) and issubclass(layer, Output)}
    assert public - {Output} <= {type(make()) for make in OUTPUTS.values()}


def test_what_predicts_becomes_arrays(output):
    """torch records no operations for predictions, so that NumPy takes them; other outputs of a call keep theirs."""
    hidden = np.random.default_rng(0).normal(size=(*TARGETS.shape, DIM)).astype("float32")
    layer = output.layer
    arrays = [layer.nll(hidden, TARGETS)]
    if BACKEND == "torch":  # the others compile each method
        arrays += [layer.log_probs(hidden), *layer.top_k(hidden, 2), *layer.score(hidden, TARGETS)]
        arrays += [layer.rank(hidden, TARGETS), *layer.alternatives(hidden, TARGETS, 2)]
        arrays += [layer.sample(hidden, seed=1), layer.sample(hidden, top_k=2, temperature=0.7, seed=1)]
    for array in arrays:
        assert np.asarray(array).shape[:2] == TARGETS.shape and not getattr(array, "requires_grad", False)
    if BACKEND == "torch":
        states = ops.convert_to_tensor(hidden).requires_grad_()
        values = [layer.nll(states, TARGETS), layer.log_probs(states), layer(hidden), layer.total_nll(hidden, TARGETS)]
        assert all(value.requires_grad for value in values)
