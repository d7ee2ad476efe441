"""Models whose optimizer updates the rows that a batch reads, against the same models with dense gradients."""

import keras
import numpy as np

from keras_adaptive.layers import AdaptiveSoftmax, LSTMDecoder, WordEmbedding
from keras_adaptive.models import LanguageModel
from tests.support.tiny import VOCABULARY, batch, weights_of, word_model
from tests.support.weights import randomize

TOKENS, TARGETS, WEIGHTS = batch(4)
READ = np.unique(TOKENS[WEIGHTS > 0])  # a causal model reads no further


class ReadAsAWhole(WordEmbedding):
    """An embedding whose gradient is dense."""

    row_variables = ()


def test_a_language_model_updates_the_rows_that_it_reads():
    """The update equals the update by dense gradients, also with micro-batches and a clip of the body only."""
    found = []
    for embedding in (WordEmbedding, ReadAsAWhole):
        layers = embedding(VOCABULARY, 8), LSTMDecoder(1, 8, 8), AdaptiveSoftmax(VOCABULARY, ())
        model = randomize(LanguageModel(*layers))
        before = weights_of(model)
        optimizer = keras.optimizers.SGD(1.0, global_clipnorm=0.01)
        model.compile(optimizer, micro_batches=2, clip_parts=("body",))
        norm = model.train_on_batch(TOKENS, TARGETS, WEIGHTS, return_dict=True)["gradient_norm"]
        changes = [new - old for new, old in zip(weights_of(model), before, strict=True)]
        found.append([*changes, norm])
    for actual, expected in zip(*found, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)
    words, *body, softmax, norm = found[0]
    np.testing.assert_array_equal(np.flatnonzero(np.any(words != 0, axis=1)), READ)
    assert abs(np.sqrt(sum(np.sum(change**2) for change in body)) - 0.01) < 1e-6
    others = np.sqrt(np.sum(words**2) + np.sum(softmax**2))
    assert 0.1 < others < norm and norm - others < 0.1 * norm  # not clipped


def test_a_word_model_updates_the_rows_that_it_reads():
    """Clipped to a norm in which a row counts once that is read several times."""
    found = []
    for embedding, bound in ((WordEmbedding, 0.01), (ReadAsAWhole, None)):
        model = word_model(embedding(VOCABULARY, 8), keras.layers.Dense(8), AdaptiveSoftmax(VOCABULARY, ()))
        before = weights_of(model)
        model.compile(keras.optimizers.SGD(1.0, global_clipnorm=bound), metrics=["accuracy"])
        logs = model.fit(TOKENS, TARGETS, sample_weight=WEIGHTS, verbose=0).history
        found.append(([new - old for new, old in zip(weights_of(model), before, strict=True)], logs))
    (clipped, logs), (whole, expected) = found
    norm = np.sqrt(sum(np.sum(change**2) for change in whole))
    assert norm > 0.1 and logs.keys() == expected.keys()
    for actual, change in zip(clipped, whole, strict=True):
        np.testing.assert_allclose(actual, change * 0.01 / norm, atol=1e-7)
    for name in expected:
        np.testing.assert_allclose(logs[name], expected[name], rtol=1e-5)
    np.testing.assert_array_equal(np.flatnonzero(np.any(clipped[0] != 0, axis=1)), READ)
