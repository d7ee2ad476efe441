"""Copies of a model keep the tie between embedding and softmax, and leave the original alone."""

import json

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, WordEmbedding
from tests.support.backends import BACKEND
from tests.support.closeness import all_equal
from tests.support.tiny import saved_and_loaded, weights_of
from tests.support.weights import randomize

VOCABULARY, LENGTH, DIM, CUTOFFS = 30, 5, 8, (5, 12)


def embedding_of(kind):
    if kind in ("plain", "one table"):
        return WordEmbedding(VOCABULARY, DIM, name="words"), CUTOFFS if kind == "one table" else ()
    return AdaptiveEmbedding(VOCABULARY, DIM, CUTOFFS, factor=2, name="words"), CUTOFFS


def functional(kind="adaptive"):
    """Returns a functional model whose softmax is tied to its embedding, which may lie in nested models."""
    tokens, targets = (keras.Input((LENGTH,), dtype="int32", name=name) for name in ("tokens", "targets"))
    words, cutoffs = embedding_of(kind)
    bias = kind == "one table"
    softmax = AdaptiveSoftmax(VOCABULARY, cutoffs, factor=2, tied_to=words, use_bias=bias, name="softmax")
    body = keras.layers.Dense(DIM, activation="tanh", name="body")
    if kind == "nested":
        reader = keras.Model(tokens, words(tokens), name="reader")
        inputs = keras.Input((LENGTH,), dtype="int32")
        hidden = body(keras.Model(inputs, reader(inputs), name="outer")(tokens))
    else:
        hidden = body(words(tokens))
    hidden = hidden + keras.layers.Dense(DIM, name="residual")(hidden)
    return randomize(keras.Model([tokens, targets], softmax(hidden, targets)))


def words_of(model):
    (words,) = (layer for layer in model._flatten_layers() if layer.name == "words")
    return words


COPIES = {
    "clone_model": lambda model, folder: keras.models.clone_model(model),
    "recursive clone": lambda model, folder: keras.models.clone_model(model, recursive=True),
    "clone of a clone": lambda model, folder: keras.models.clone_model(keras.models.clone_model(model)),
    "from_config": lambda model, folder: keras.Model.from_config(model.get_config()),
    "from_config of JSON": lambda model, folder: keras.Model.from_config(json.loads(json.dumps(model.get_config()))),
    "model_from_json": lambda model, folder: keras.models.model_from_json(model.to_json()),
    "load_model": lambda model, folder: saved_and_loaded(model, folder / "model.keras"),
}
CASES = [(way, kind) for way in COPIES for kind in ("adaptive", "plain", "one table", "nested")]


@pytest.mark.parametrize("way, kind", CASES)
@pytest.mark.once
def test_a_copy_is_tied_to_its_own_embedding(way, kind, tmp_path):
    model = functional(kind)
    words = words_of(model)
    copy = COPIES[way](model, tmp_path)
    assert copy.get_layer("softmax").tied_to is words_of(copy)
    assert words_of(copy) is not words and model.get_layer("softmax").tied_to is words
    assert copy.count_params() == model.count_params()
    assert [tuple(v.shape) for v in copy.trainable_variables] == [tuple(v.shape) for v in model.trainable_variables]
    if BACKEND == "torch":
        assert len(list(copy.parameters())) == len(list(model.parameters()))


@pytest.mark.parametrize("way", ["clone_model", "model_from_json", "load_model"])
def test_training_a_copy_leaves_the_original_alone(way, tmp_path):
    model = functional()
    copy = COPIES[way](model, tmp_path)
    copy.set_weights(model.get_weights())
    before = weights_of(model)
    tokens = np.arange(4 * LENGTH, dtype="int32").reshape(4, LENGTH)
    targets = (tokens + 9) % VOCABULARY  # none of which is a token: the softmax alone moves some rows of the tables
    copy.compile(keras.optimizers.SGD(1.0), run_eagerly=BACKEND == "tensorflow")
    copy.fit([tokens[:2], targets[:2]], verbose=0)
    all_equal(before, weights_of(model))
    moved = [np.any(old != new, axis=-1) for old, new in zip(before, weights_of(copy), strict=True)]
    assert all(rows.any() for rows in moved)
    table = moved[0]
    assert table.shape == (CUTOFFS[0],) and table.all()


def test_a_copy_of_weights_says_the_same(tmp_path):
    model = functional()
    copy = keras.models.clone_model(model)
    model.save_weights(tmp_path / "a.weights.h5")
    copy.load_weights(tmp_path / "a.weights.h5")
    all_equal(weights_of(model), weights_of(copy))


def test_a_sequential_model_is_tied_too():
    words, cutoffs = embedding_of("adaptive")
    softmax = AdaptiveSoftmax(VOCABULARY, cutoffs, tied_to=words, name="softmax")
    model = keras.Sequential([keras.Input((LENGTH,), dtype="int32"), words, keras.layers.Dense(DIM), softmax])
    for copy in (keras.models.clone_model(model), keras.Sequential.from_config(model.get_config())):
        assert copy.layers[-1].tied_to is copy.layers[0]
        assert copy.count_params() == model.count_params()


def test_a_copy_without_the_embedding_has_its_own():
    words, cutoffs = embedding_of("adaptive")
    hidden = keras.Input((LENGTH, DIM))
    model = keras.Model(hidden, AdaptiveSoftmax(VOCABULARY, cutoffs, tied_to=words, name="softmax")(hidden))
    copy = keras.models.clone_model(model)
    assert copy.get_layer("softmax").tied_to is not words
    assert copy.count_params() == model.count_params() > 0


def test_freezing_the_softmax_leaves_the_embedding_alone():
    model = functional()
    softmax, words = model.get_layer("softmax"), model.get_layer("words")
    words.tables[0].trainable = False
    softmax.trainable = False
    assert [v.trainable for v in words.variables] == [False] + 5 * [True]
    assert words.trainable and not softmax.trainable and not softmax.class_table.trainable
    assert not softmax.trainable_variables and len(model.trainable_variables) == 5 + 4
    softmax.trainable = True
    assert [v.trainable for v in words.variables] == [False] + 5 * [True]
    assert softmax.class_table.trainable
    words.trainable = False
    softmax.trainable = True
    assert not words.trainable and not any(v.trainable for v in words.variables)
    model.trainable = False
    assert not model.trainable_variables
