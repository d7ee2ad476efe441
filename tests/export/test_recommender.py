"""SavedModels of recommenders against the live model."""

import keras
import numpy as np
import pytest

from keras_adaptive.data import item_sequences
from keras_adaptive.export import export_recommender
from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.models import WordModel
from tests.support.backends import BACKEND
from tests.support.refusals import refused
from tests.support.weights import randomize

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="SavedModels are made on TensorFlow")

K = 5


@pytest.fixture(scope="module")
def vocabulary():
    random = np.random.default_rng(1)
    log = {"user": random.integers(0, 30, 400), "item": random.zipf(1.3, 400) % 17}  # numbers, served by their names
    return item_sequences(log, time=None).vocabulary


def recommender(items, per_row=False):
    history = keras.Input((None,), dtype="int32")
    embedding = AdaptiveEmbedding(items, 8, (9,))
    taste = keras.layers.GRU(8, return_sequences=not per_row)(embedding(history))
    return randomize(WordModel(history, taste, word_output=AdaptiveSoftmax(items, (9,), tied_to=embedding)))


@pytest.fixture(scope="module")
def model(vocabulary):
    return recommender(len(vocabulary))


def test_names_in_and_names_out(model, vocabulary, tmp_path):
    """A row does not depend on the padding of others, what was clicked is left out, and unknown items are read."""
    import tensorflow as tf

    export_recommender(model, vocabulary, tmp_path / "1", length=9, k=K)
    served = tf.saved_model.load(str(tmp_path / "1"))
    clicked = [[3, 1, 4], [5], [2, 77, 2, 6]]
    longest = max(map(len, clicked))
    found = served.recommend([[*map(str, row), *[""] * (longest - len(row))] for row in clicked])
    for row, items, log_probs in zip(clicked, found["items"].numpy(), found["log_probs"].numpy(), strict=True):
        ids = vocabulary.encode(row)[None]
        hidden = model.predict(ids, verbose=0)[:, -1]
        every = keras.ops.convert_to_numpy(model.word_output.log_probs(hidden))[0]
        best = [id for id in np.argsort(-every) if id >= 4 and id not in ids][:K]
        assert [int(item) for item in items] == vocabulary.decode(best)
        np.testing.assert_allclose(log_probs, every[best], rtol=1e-4)
    outputs = served.signatures["serving_default"](history=tf.constant([["3"]]))
    assert set(outputs) == {"items", "log_probs"}
    for history in ([[""]], [["3", "", "4"]], [["3"] * 10]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="A history must have an item"):
            served.recommend(history)


def test_few_items_are_left(model, vocabulary, tmp_path):
    import tensorflow as tf

    items = len(vocabulary) - 4
    export_recommender(model, vocabulary, tmp_path / "1", length=items, k=items)
    served = tf.saved_model.load(str(tmp_path / "1"))
    found = served.recommend([[str(item) for item in vocabulary.words[4:-1]]])
    assert found["items"].numpy()[0].tolist() == [str(vocabulary.words[-1]).encode(), *[b""] * (items - 1)]
    assert np.isneginf(found["log_probs"].numpy()[0, 1:]).all()


def test_what_cannot_be_served_is_refused(model, vocabulary, tmp_path):
    items = len(vocabulary)
    for given, words, k, match in (
        (model, vocabulary, items - 3, f"`k` must be from 1 to {items - 4}, the number of items"),
        (model, vocabulary.with_words([99]), K, f"must have the {items} words of the model"),
        (recommender(items, per_row=True), vocabulary, K, "hidden states .batch, length, dim"),
    ):
        refused(export_recommender, given, words, tmp_path / "1", length=9, k=k, match=match)
    assert not (tmp_path / "1").exists()
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "file").touch()
    refused(export_recommender, model, vocabulary, tmp_path / "2", length=9, k=K, match="exists and is not empty")
