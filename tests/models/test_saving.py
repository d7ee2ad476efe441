import importlib.util

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.models import LanguageModel
from keras_adaptive.optimizers import NAG
from tests.support.backends import BACKEND
from tests.support.programs import run
from tests.support.tiny import (
    LENGTH,
    VOCABULARY,
    batch,
    compiled,
    language_model,
    largest_difference,
    saved_and_loaded,
    word_model,
)
from tests.support.weights import randomize

pytestmark = pytest.mark.usefixtures("eager_predictions")
TOKENS, TARGETS, _ = batch(3)
READ = """
import sys, json, numpy as np, keras, keras_adaptive
if keras.config.backend() == "tensorflow":  # the quickest way
    import tensorflow as tf
    tf.config.run_functions_eagerly(True)
folder, data = sys.argv[1], np.load(sys.argv[1] + "/data.npz")
model = keras.saving.load_model(folder + "/model.keras")
plain = keras.saving.load_model(folder + "/plain.keras")
results = {
    "nll": model.nll(data["tokens"], data["targets"]),
    "log_probs": model.log_probs(data["tokens"]),
    "words": model.generate(data["tokens"][:, :2], 3, seed=1),
    "hidden": plain.predict([data["tokens"], data["targets"]], verbose=0),
}
untrained = type(model).from_config(model.get_config())
untrained.load_weights(folder + "/model.weights.h5")
results["nll of weights"] = untrained.nll(data["tokens"], data["targets"])
assert plain.get_layer("softmax").tied_to is plain.get_layer("words")
np.savez(folder + "/" + keras.backend.backend() + ".npz", **results)
"""


def plain_model():
    """A functional model of Keras that ends in an AdaptiveSoftmax."""
    tokens, targets = (keras.Input((LENGTH,), dtype="int32", name=name) for name in ("tokens", "targets"))
    words = AdaptiveEmbedding(VOCABULARY, 8, (5, 12), factor=2, name="words")
    softmax = AdaptiveSoftmax(VOCABULARY, (5, 12), tied_to=words, name="softmax")
    hidden = keras.layers.Dense(8, activation="tanh", name="body")(words(tokens))
    return randomize(keras.Model([tokens, targets], softmax(hidden, targets)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a model that was trained for a step, and what it says."""
    folder = tmp_path_factory.mktemp("saved")
    model, plain = language_model(dtype="float32", dropout=0.1), plain_model()
    compiled(model, NAG(0.5, momentum=0.9, global_clipnorm=1.0), micro_batches=3)
    model.fit(TOKENS, TARGETS, verbose=0)
    model.save(folder / "model.keras")
    model.save_weights(folder / "model.weights.h5")
    plain.save(folder / "plain.keras")
    np.savez(folder / "data.npz", tokens=TOKENS, targets=TARGETS)
    said = {
        "nll": model.nll(TOKENS, TARGETS),
        "log_probs": model.log_probs(TOKENS),
        "words": model.generate(TOKENS[:, :2], 3, seed=1),
        "hidden": plain.predict([TOKENS, TARGETS], verbose=0),
    }
    return folder, model, said


@pytest.mark.processes
def test_another_backend_says_the_same(saved):
    """The suites of the three backends go round: each writes for one of the others and reads from the other."""
    backend = {"torch": "jax", "jax": "tensorflow", "tensorflow": "torch"}[BACKEND]
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    folder, _, said = saved
    done = run("-c", READ, folder, KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr
    with np.load(folder / f"{backend}.npz") as results:
        np.testing.assert_array_equal(results["words"], said["words"])
        np.testing.assert_array_equal(results["nll of weights"], results["nll"])
        for name in ("nll", "log_probs", "hidden"):
            np.testing.assert_allclose(results[name], said[name], atol=1e-5)


def test_a_loaded_model_is_the_saved_one(saved):
    folder, model, said = saved
    loaded = keras.saving.load_model(folder / "model.keras")
    assert isinstance(loaded, LanguageModel) and loaded.name == model.name
    np.testing.assert_array_equal(loaded.nll(TOKENS, TARGETS), said["nll"])
    untrained = LanguageModel.from_config(model.get_config())
    untrained.load_weights(folder / "model.weights.h5")
    np.testing.assert_array_equal(untrained.nll(TOKENS, TARGETS), said["nll"])
    assert loaded.word_output.tied_to is loaded.word_input
    assert loaded.count_params() == model.count_params()


def test_training_goes_on_where_it_was(tmp_path):
    tokens, targets, weights = batch(4)
    model = compiled(language_model(), NAG(0.5, momentum=0.9, global_clipnorm=0.1), micro_batches=2)
    fit = {"sample_weight": weights, "batch_size": 4, "verbose": 0}
    model.fit(tokens, targets, **fit)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.micro_batches == 2 and loaded.optimizer.momentum == 0.9
    model.fit(tokens, targets, **fit)
    loaded.fit(tokens, targets, **fit)
    assert int(keras.ops.convert_to_numpy(loaded.optimizer.iterations)) == 2
    assert largest_difference(model, loaded) < 1e-6


@pytest.mark.parametrize("make", [word_model, lambda: language_model(dtype="mixed_float16")])
def test_a_model_is_saved_before_it_is_trained(tmp_path, make):
    """Keras would warn that it skips the state of the optimizer, which has none yet; warnings are errors."""
    model = compiled(make(), "adam")
    loaded = saved_and_loaded(model, tmp_path / "model.keras")
    for one in (model, loaded):
        one.fit(TOKENS, TARGETS, batch_size=3, shuffle=False, verbose=0)
    assert largest_difference(model, loaded) == 0.0
    loaded = saved_and_loaded(model, tmp_path / "model.keras")
    assert int(keras.ops.convert_to_numpy(loaded.optimizer.iterations)) == 1


@pytest.mark.once
def test_weights_are_stored_once(tmp_path):
    model = language_model()
    model.save_weights(tmp_path / "model.weights.h5")
    import h5py

    sizes = []
    with h5py.File(tmp_path / "model.weights.h5") as file:
        file.visititems(lambda _, item: sizes.append(item.size) if isinstance(item, h5py.Dataset) else None)
    assert sum(sizes) == model.count_params()


@pytest.mark.parametrize("name", ["word_input", "body", "word_output"])
@pytest.mark.once
def test_frozen_parts_stay_frozen_in_a_file(tmp_path, name):
    """Otherwise the optimizer, which has variables for trainable weights only, could not be loaded."""
    model = language_model()
    getattr(model, name).trainable = False
    model.compile(NAG(0.1, momentum=0.9))
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    flags = [[weight.trainable for weight in one.weights] for one in (model, loaded)]
    assert flags[0] == flags[1] and set(flags[0]) == {True, False}
