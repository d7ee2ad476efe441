"""An ensemble against NumPy sums of its members' probabilities."""

import keras
import numpy as np
import pytest

from keras_adaptive.evaluation import state_grows
from keras_adaptive.layers import AdaptiveSoftmax, LSTMDecoder, WordEmbedding
from keras_adaptive.models import Ensemble, LanguageModel
from tests.support.tiny import VOCABULARY, batch, language_model
from tests.support.weights import randomize

WEIGHTS = [0.3, 0.7]
TOKENS, TARGETS, _ = batch(2)

pytestmark = pytest.mark.usefixtures("eager_predictions")


def recurrent(vocabulary_size=VOCABULARY):
    """A model whose parts and dimensions differ from those of the Transformer."""
    words = WordEmbedding(vocabulary_size, 4)
    return randomize(LanguageModel(words, LSTMDecoder(1, 6, 4), AdaptiveSoftmax(vocabulary_size, (), tied_to=words)), 2)


@pytest.fixture(scope="module")
def members():
    return [language_model(), recurrent()]


@pytest.fixture(scope="module")
def ensemble(members):
    return Ensemble(members, WEIGHTS)


@pytest.fixture(scope="module")
def expected(members):
    """The log-probabilities of all words for `TOKENS`, in float64."""
    probabilities = (np.exp(model.log_probs(TOKENS).astype("float64")) for model in members)
    return np.log(sum(weight * one for weight, one in zip(WEIGHTS, probabilities)))


def test_probabilities_are_averaged(ensemble, expected):
    own = np.take_along_axis(expected, TARGETS[..., None], axis=-1)
    np.testing.assert_allclose(ensemble.log_probs(TOKENS), expected, atol=5e-6)
    np.testing.assert_allclose(ensemble.nll(TOKENS, TARGETS), -own[..., 0], atol=5e-6)
    np.testing.assert_allclose(ensemble.nll(TOKENS, TARGETS, segment=4), -own[..., 0], atol=5e-6)
    np.testing.assert_allclose(ensemble.predict(TOKENS, verbose=0), expected[:, -1], atol=5e-6)
    log_probs, ranks, entropies, best, ids = ensemble.alternatives(TOKENS, TARGETS, 3)
    np.testing.assert_allclose(log_probs, own[..., 0], atol=5e-6)
    np.testing.assert_array_equal(ranks, 1 + np.sum(expected > own, axis=-1))
    np.testing.assert_array_equal(ensemble.score(TOKENS, TARGETS)[1], ranks)
    np.testing.assert_allclose(entropies, -np.sum(np.exp(expected) * expected, axis=-1), atol=1e-5)
    np.testing.assert_array_equal(ids, np.argsort(-expected, axis=-1)[..., :3])
    np.testing.assert_allclose(best, np.take_along_axis(expected, ids, axis=-1), atol=5e-6)


def test_greedy_words_are_the_best_of_the_mean(ensemble):
    prompt = TOKENS[:, :2]
    ids = ensemble.generate(prompt, 3, temperature=0)
    text = np.concatenate([prompt, ids], axis=1)
    np.testing.assert_array_equal(ids, ensemble.log_probs(text)[:, 1:-1].argmax(axis=-1))
    np.testing.assert_array_equal(ensemble.generate(prompt, 3, seed=1), ensemble.generate(prompt, 3, seed=1))


@pytest.mark.once
def test_weights_are_equal_by_default_and_may_be_0(members):
    nll = np.stack([model.nll(TOKENS, TARGETS) for model in members]).astype("float64")
    mean = -np.log(np.exp(-nll).mean(axis=0))
    np.testing.assert_allclose(Ensemble(members).nll(TOKENS, TARGETS), mean, atol=5e-6)
    np.testing.assert_allclose(Ensemble(members, [0, 1]).nll(TOKENS, TARGETS), nll[1], atol=5e-6)


def test_an_ensemble_is_saved_and_may_be_a_member(ensemble, members, expected, tmp_path):
    ensemble.save(tmp_path / "ensemble.keras")
    loaded = keras.saving.load_model(tmp_path / "ensemble.keras")
    np.testing.assert_allclose(loaded.log_probs(TOKENS), expected, atol=5e-6)
    assert loaded.word_output.shares.tolist() == WEIGHTS
    both = Ensemble([ensemble, members[0]], [0.5, 0.5]).log_probs(TOKENS).astype("float64")
    mean = np.exp(expected) / 2 + np.exp(members[0].log_probs(TOKENS)) / 2
    np.testing.assert_allclose(both, np.log(mean), atol=5e-6)


def test_the_state_is_that_of_all_members(ensemble, members):
    assert state_grows(ensemble.body) and not state_grows(Ensemble(members[1:]).body)
    assert ensemble.body.max_length is None
    assert ensemble.for_inference().models == members
