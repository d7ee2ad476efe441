"""A model with other words predicts the old ones as before, and new ones as their neighbors."""

import keras
import numpy as np
import pytest

from keras_adaptive.data import SPECIAL_WORDS, Vocabulary
from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, CharCNN, SampledSoftmax, WordEmbedding
from keras_adaptive.models import WordModel, with_vocabulary
from tests.support.backends import numpy
from tests.support.refusals import refused
from tests.support.tiny import VOCABULARY, WORDS, compiled, language_model
from tests.support.weights import randomize

OLD = Vocabulary(WORDS, [0] * VOCABULARY)
NEW = ["new", "newer"]
NEAR = {"new": ["word2", "wordf"], "newer": ["worde"]}  # of the head and the tail, and of the tail
IDS = np.random.default_rng(0).integers(0, VOCABULARY, (2, 5)).astype("int32")


def recurrent(embedding, word_output):
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.GRU(8, return_sequences=True)(embedding(ids))
    return randomize(WordModel(ids, hidden, word_output=word_output))


def adaptive(tied, **kwargs):
    embedding = AdaptiveEmbedding(VOCABULARY, 8, (5,), factor=2)
    return recurrent(
        embedding, AdaptiveSoftmax(VOCABULARY, (5,), factor=2, tied_to=embedding if tied else None, **kwargs)
    )


def plain(word_output):
    embedding = WordEmbedding(VOCABULARY, 8)
    return recurrent(embedding, word_output(embedding))


MODELS = {
    "decoder": language_model,
    "tied": lambda: adaptive(True),
    "untied": lambda: adaptive(False, use_bias=True),
    "sampled": lambda: plain(lambda _: SampledSoftmax(VOCABULARY, 4, counts=np.arange(1, 21))),
    "plain": lambda: plain(lambda embedding: AdaptiveSoftmax(VOCABULARY, (), tied_to=embedding)),
    "slices": lambda: plain(lambda embedding: AdaptiveSoftmax(VOCABULARY, (5,), tied_to=embedding)),
    "characters": lambda: recurrent(
        CharCNN(WORDS, 8, char_dim=4, filters=(3, 4), max_bytes=8), AdaptiveSoftmax(VOCABULARY, (5,), factor=2)
    ),
}


def log_probs(model, ids=IDS):
    return numpy(model.word_output.log_probs(model(ids)))


@pytest.mark.parametrize("name", MODELS)
def test_old_words_shrink_by_the_share_of_new_ones_only(name):
    model, vocabulary = MODELS[name](), OLD.with_words(NEW)
    new = with_vocabulary(model, OLD, vocabulary, NEAR)
    before, after = log_probs(model), log_probs(new)
    np.testing.assert_allclose(np.exp(after).sum(-1), 1, rtol=1e-5)
    last = new.word_output.boundaries[-2]
    np.testing.assert_allclose(after[..., :last], before[..., :last], atol=1e-5)
    shrunk = before[..., last:] - after[..., last:VOCABULARY]
    np.testing.assert_allclose(shrunk, np.broadcast_to(shrunk[..., :1], shrunk.shape), atol=1e-5)
    assert (shrunk > 0).all()
    np.testing.assert_allclose(after[..., -1], after[..., OLD.words.index("worde")], atol=1e-4)  # its only neighbor
    if name != "characters":  # in which the vector comes from the spelling
        inputs = np.array([[vocabulary.encode(["newer"])[0], OLD.words.index("worde")]], "int32")
        read = [layer for layer in new.layers if hasattr(layer, "row_variables")][0](inputs)
        np.testing.assert_allclose(*numpy(read)[0], atol=1e-5)
    assert log_probs(new, np.full((1, 2), VOCABULARY + 1, "int32")).shape == (1, 2, VOCABULARY + 2)
    compiled(new).fit(IDS, IDS + 2, verbose=0)


def test_the_vector_of_a_new_word_is_the_mean_of_its_neighbors():
    model = MODELS["plain"]()
    table = numpy(with_vocabulary(model, OLD, OLD.with_words(NEW), NEAR).word_output.tables[0].value)
    np.testing.assert_allclose(table[VOCABULARY], (table[6] + table[19]) / 2, atol=1e-6)


@pytest.mark.parametrize("name", ["decoder", "tied", "sampled"])
def test_a_renewed_order_keeps_words_and_drops_those_that_left(name):
    model = MODELS[name]()
    order = [*WORDS[4:9][::-1], *WORDS[9:-2][::-1]]  # the last two words are gone; the head has one word
    renewed = Vocabulary([*SPECIAL_WORDS, *order], [0] * (VOCABULARY - 2))
    new = with_vocabulary(model, OLD, renewed)
    kept = OLD.encode(renewed.words)
    same_band = (kept < 5) == (np.arange(len(kept)) < 5)
    read, before = (
        numpy([layer for layer in each.layers if hasattr(layer, "row_variables")][0](ids[None]))[0]
        for each, ids in ((new, np.arange(len(kept))), (model, kept))
    )
    np.testing.assert_allclose(read[same_band], before[same_band], atol=1e-5)
    if name == "sampled":
        difference = log_probs(new, np.ones((1, 3), "int32")) - log_probs(model, np.ones((1, 3), "int32"))[..., kept]
        np.testing.assert_allclose(difference, np.broadcast_to(difference[..., :1], difference.shape), atol=1e-5)
        assert new.word_output.loss.counts.tolist() == (kept + 1).tolist()


@pytest.mark.once
def test_the_copy_of_a_model_with_the_same_words_is_the_model():
    model = adaptive(True)
    np.testing.assert_array_equal(log_probs(with_vocabulary(model, OLD, OLD)), log_probs(model))


@pytest.mark.once
def test_what_is_refused():
    model, larger = adaptive(True), OLD.with_words(NEW)
    refused(with_vocabulary, model, larger, OLD, match="one of an input or output layer.* of 22 words")
    refused(
        with_vocabulary,
        model,
        OLD,
        larger,
        {"word1": ["word2"]},
        match="of the new vocabulary only.*'word1'",
    )
    refused(with_vocabulary, model, OLD, larger, {"new": ["newer"]}, match="neighbors of 'new'.*Received: .'newer'")
    refused(with_vocabulary, model, OLD, larger, {"new": "word1"}, match="must be a list of words")
    refused(with_vocabulary, model, OLD, larger, {"new": []}, match="must be a list of words")
    ids = keras.Input((None,), dtype="int32")
    other = WordModel(ids, keras.layers.Embedding(VOCABULARY, 8)(ids), word_output=AdaptiveSoftmax(VOCABULARY, ()))
    refused(with_vocabulary, other, OLD, larger, match="by an input of this package.* of 20 words")
    refused(OLD.with_words, ["new", "word1"], match="distinct. Received: the word 'word1' twice")
