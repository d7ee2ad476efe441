"""Dynamic evaluation: losses before each step, and steps that are those of training without dropout."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_adaptive.data.batches.context_windows import ContextWindows
from keras_adaptive.evaluation import word_losses, word_losses_of_streams
from keras_adaptive.layers import LSTMDecoder
from keras_adaptive.memory import adapting
from keras_adaptive.models import Dropout, LanguageModel
from tests.support.tiny import VOCABULARY, compiled, language_model, largest_difference
from tests.support.weights import randomize

RATE = 0.5
TEXT = np.random.default_rng(4).integers(4, VOCABULARY, 22).astype("int32")


def corpus(tokens=TEXT):
    read = lambda split: tokens  # noqa: E731
    return SimpleNamespace(verify=read, tokens=read, words=read, word_starts=lambda split: np.arange(len(tokens)))


def transformer(rate):
    return language_model(dropout=Dropout(*[rate] * 5))


def recurrent(rate):
    model = language_model(dropout=Dropout(tail=rate, input=rate))
    body = LSTMDecoder(1, 6, 8, weight_dropout=rate, dropout=rate, penalties=(rate, rate))
    return randomize(LanguageModel(model.word_input, body, model.word_output))


def test_each_batch_is_read_by_a_model_that_has_learned_from_those_before():
    model, twin = adapting(transformer(0.5), RATE), compiled(transformer(0.0), keras.optimizers.SGD(RATE))
    nll, _ = word_losses(model, corpus(), "test", block=3, context=2, batch_size=2)
    expected = []
    for tokens, targets, weights in ContextWindows(TEXT, 3, 2, batch_size=2, by_lines=False):
        expected.extend(twin.nll(tokens, targets)[weights > 0])
        twin.train_on_batch(tokens, targets, weights)
    np.testing.assert_allclose(nll, expected, rtol=1e-4)
    assert largest_difference(model, twin) < 1e-5
    still, _ = word_losses(transformer(0.0), corpus(), "test", block=3, context=2, batch_size=2)
    np.testing.assert_allclose(nll[:6], still[:6], rtol=1e-5)
    assert np.abs(nll - still)[6:].min() > 1e-4


def test_streams_carry_their_state():
    model = adapting(recurrent(0.5), RATE, streams=2)
    twin = compiled(recurrent(0.0), keras.optimizers.SGD(RATE), stream_rows=2)
    nll, _ = word_losses_of_streams(model, corpus(), "test", block=4, streams=2)
    shifted, begins = np.append(2, TEXT[:-1]).reshape(2, 11), True
    for place in range(0, 11, 4):
        tokens, targets = shifted[:, place : place + 4], TEXT.reshape(2, 11)[:, place : place + 4]
        twin.train_on_batch((tokens, np.full(2, begins)), targets)
        begins = False
    assert largest_difference(model, twin) < 1e-5
    still, _ = word_losses_of_streams(recurrent(0.0), corpus(), "test", block=4, streams=2)
    changed = np.abs(nll - still).reshape(2, 11)
    assert changed[:, :4].max() < 1e-5 < 1e-4 < changed[:, 4:].max()


def test_a_text_that_repeats_itself_becomes_probable():
    text = np.tile(TEXT[:6], 40)
    nll, _ = word_losses(adapting(transformer(0.1), 0.1), corpus(text), "test", block=6, context=0, batch_size=1)
    assert nll[-6:].mean() < 0.5 * nll[:6].mean()


def test_rates_that_are_out_of_range_or_diverge_are_refused():
    for rate in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="`learning_rate` must be above 0. Received: learning_rate="):
            adapting(transformer(0.0), rate)
    with pytest.raises(ValueError, match="diverged in dynamic evaluation: .* Pass a smaller learning rate|finite"):
        word_losses(adapting(transformer(0.0), 1e30), corpus(), "test", block=3, context=0, batch_size=1)
