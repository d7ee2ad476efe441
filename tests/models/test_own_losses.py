"""Losses that layers add themselves: trained on, counted once per update, and no part of the perplexity."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveSoftmax, WordEmbedding
from keras_adaptive.models import LanguageModel
from tests.support.backends import BACKEND
from tests.support.tiny import VOCABULARY, batch, compiled, language_model, largest_difference, last, weights_of
from tests.support.toy_body import ToyBody
from tests.support.weights import randomize

pytestmark = pytest.mark.usefixtures("eager_predictions")
STRENGTH = 2.0
TOKENS, TARGETS, WEIGHTS = batch(4)


class PenalizedBody(ToyBody):
    """Adds the mean square of its hidden states to the loss."""

    def step(self, x, state, training=False):
        y, state = super().step(x, state, training=training)
        self.add_loss(STRENGTH * ops.mean(ops.square(y)))
        return y, state


def regularized(model):
    for table in model.word_output.tables:
        table.regularizer = keras.regularizers.L2(STRENGTH)
    return model


def fit(model, **kwargs):
    compiled(model, keras.optimizers.SGD(1.0), **kwargs)
    return last(model.fit(TOKENS, TARGETS, sample_weight=WEIGHTS, batch_size=4, verbose=0))


@pytest.mark.parametrize("parts, eagerly", [(1, BACKEND == "tensorflow"), (2, False)])
def test_a_regularizer_moves_the_weights_once_per_update(parts, eagerly):
    plain, penalized, before = language_model(), regularized(language_model()), language_model()
    expected, logs = fit(plain), fit(penalized, micro_batches=parts, run_eagerly=eagerly)
    for index, (old, without, new) in enumerate(zip(*map(weights_of, (before, plain, penalized)))):
        shrunk = 2 * STRENGTH * old if index < len(before.word_output.tables) else 0
        np.testing.assert_allclose(new, without - shrunk, atol=2e-6)
    penalty = sum(STRENGTH * np.sum(np.square(table)) for table in weights_of(before)[: len(before.word_output.tables)])
    assert logs["loss"] == pytest.approx(expected["loss"] + penalty, rel=1e-5)
    assert logs["perplexity"] == pytest.approx(expected["perplexity"], rel=1e-5)


def test_evaluation_is_of_the_words_alone():
    model = regularized(language_model())
    model.compile("sgd")
    found = model.evaluate(TOKENS, TARGETS, sample_weight=WEIGHTS, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(np.average(model.nll(TOKENS, TARGETS), weights=WEIGHTS), rel=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_loss_that_a_layer_adds_is_trained_on(policy):
    """Every update has the same loss, and keeps none from the update before."""

    def fit(body, rate):
        words, softmax = WordEmbedding(VOCABULARY, 8, dtype=policy), AdaptiveSoftmax(VOCABULARY, (5,), dtype=policy)
        model = LanguageModel(words, body(8, dtype=policy), softmax)
        compiled(randomize(model), keras.optimizers.SGD(rate))
        return model, model.fit(TOKENS, TARGETS, epochs=3, batch_size=4, verbose=0).history

    model, still = fit(PenalizedBody, 0.0)
    hidden = ops.convert_to_numpy(ops.cast(model(TOKENS), "float32"))
    nll = model.nll(TOKENS, TARGETS).mean()
    np.testing.assert_allclose(still["loss"], nll + STRENGTH * np.mean(np.square(hidden)), rtol=1e-2)
    assert np.mean(np.square(hidden)) * STRENGTH > 0.03 * nll
    np.testing.assert_allclose(still["perplexity"], np.exp(nll), rtol=1e-2)
    assert largest_difference(*(fit(body, 1.0)[0] for body in (PenalizedBody, ToyBody))) > 1e-2
