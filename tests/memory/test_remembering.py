"""Models that mix a memory with their probabilities: every method against the memory's formula."""

import keras
import numpy as np
import pytest

from keras_adaptive.layers import LSTMDecoder
from keras_adaptive.memory import Memory, remembering
from keras_adaptive.models import LanguageModel
from tests.support.tiny import VOCABULARY, language_model


def recurrent(model):
    return LanguageModel(model.word_input, LSTMDecoder(1, 6, 8), model.word_output)


@pytest.fixture(scope="module", params=[lambda model: model, recurrent], ids=["transformer", "lstm"])
def model(request):
    return request.param(language_model())


@pytest.fixture(scope="module")
def text():
    return np.random.default_rng(3).integers(4, VOCABULARY, (3, 9)).astype("int32")


@pytest.fixture(scope="module")
def memory(model, text):
    keys = model.keys(text[:, :-1]).reshape(-1, 8) + 0.1
    return Memory([(keys, text[:, 1:].ravel())], neighbors=6, temperature=0.05, share=0.3)


@pytest.fixture(scope="module")
def expected(model, memory, text):
    """Probabilities of all words at every place of the text, by the formula."""
    keys, probabilities = model.keys(text), np.exp(model.log_probs(text).astype("float64"))
    (stored, ids), of_memory = memory.shards[0], np.zeros_like(probabilities)
    for place in np.ndindex(text.shape):
        distances = np.sum((keys[place].astype("float64") - stored) ** 2, axis=1)
        nearest = np.argsort(distances)[:6]
        weights = np.exp(-(distances[nearest] - distances.min()) / 0.05)
        np.add.at(of_memory[place], ids[nearest], weights / weights.sum())
    return 0.7 * probabilities + 0.3 * of_memory


def test_probabilities_scores_and_entropies(model, memory, text, expected):
    mixing = remembering(model, memory)
    np.testing.assert_allclose(np.exp(mixing.log_probs(text)), expected, rtol=1e-3, atol=1e-5)
    assert np.abs(np.exp(model.log_probs(text)) - expected).max() > 0.1
    targets = np.roll(text, -1, axis=1)
    of_targets = np.take_along_axis(expected, targets[..., None], axis=2)[..., 0]
    log_probs, ranks = mixing.score(text, targets, segment=4)
    np.testing.assert_allclose(np.exp(log_probs), of_targets, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(np.exp(-mixing.nll(text, targets)), of_targets, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(ranks, 1 + np.sum(expected > of_targets[..., None] * 1.0001, axis=2))
    entropies = mixing.alternatives(text, targets, 3)[2]
    np.testing.assert_allclose(entropies, -np.sum(expected * np.log(expected), axis=2), rtol=1e-3)


def test_generation_draws_from_the_mixture(model, memory, text, expected):
    mixing = remembering(model, memory)
    last = expected[:, -1]
    np.testing.assert_array_equal(mixing.generate(text, 1, temperature=0)[:, 0], last.argmax(axis=1))
    rows = np.repeat(text[:1], 2000, axis=0)
    kept = np.argsort(-last[0])[:5]
    for options, chances in (
        ({}, last[0]),
        ({"temperature": 0.5, "top_k": 5}, np.where(np.isin(np.arange(VOCABULARY), kept), last[0] ** 2, 0)),
        ({"forbid": kept[:1]}, np.where(np.arange(VOCABULARY) == kept[0], 0, last[0])),
    ):
        drawn = mixing.generate(rows, 1, seed=1, **options)[:, 0]
        counts = np.bincount(drawn, minlength=VOCABULARY) / len(rows)
        np.testing.assert_allclose(counts, chances / chances.sum(), atol=0.05)
    streamed = np.stack(list(mixing.stream(text, 4, seed=2)), axis=1)
    np.testing.assert_array_equal(streamed, mixing.generate(text, 4, seed=2))


def test_a_share_of_0_is_the_model(model, memory, text):
    nothing = remembering(model, Memory(memory.shards, neighbors=2, share=0.0))
    np.testing.assert_allclose(nothing.log_probs(text), model.log_probs(text), atol=1e-5)
    assert keras.ops.convert_to_numpy(nothing(text)).shape == (3, 9, 16)
