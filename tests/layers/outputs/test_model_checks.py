"""Models of users that would be silently wrong around an output: they are right, or an error says what to write."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive import metrics
from keras_adaptive.layers import AdaptiveSoftmax
from keras_adaptive.layers.outputs.model_checks import reads_probabilities
from tests.support.backends import BACKEND, numpy
from tests.support.closeness import all_equal
from tests.support.refusals import refused
from tests.support.tiny import saved_and_loaded
from tests.support.word_parts import outputs

pytestmark = pytest.mark.once


VOCABULARY, DIM, CUTOFFS = 20, 8, (5, 10)
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijkl", "ab", "ba", "é", "ca"]
RANDOM = np.random.default_rng(0)
HIDDEN = RANDOM.normal(size=(4, 3, DIM)).astype("float32")
TARGETS = RANDOM.integers(0, VOCABULARY, size=(4, 3)).astype("int32")
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
PROBABILITIES = "returns log-probabilities, but `.*` reads probabilities: pass from_logits=True .* Received: "

OUTPUTS = outputs(WORDS, DIM, CUTOFFS)


class Subclassed(keras.Model):
    def __init__(self, layer, after=None):
        super().__init__()
        self.layer, self.after = layer, after

    def call(self, hidden):
        return self.layer(hidden) if self.after is None else self.after(self.layer(hidden))


def sequential(layer):
    return keras.Sequential([keras.Input((None, DIM)), layer])


def nested(layer):
    inputs = keras.Input((None, DIM))
    return keras.Model(inputs, sequential(layer)(inputs))


MODELS = {"sequential": sequential, "nested": nested, "subclassed": Subclassed}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.each_backend
def test_a_loss_of_probabilities_is_refused(make):
    """The error comes from compiled steps, too, in which JAX could lose weights. TensorFlow compiles one model."""
    layer = OUTPUTS["adaptive"]()
    model, options = make(layer), {"run_eagerly": BACKEND == "tensorflow" and make is not nested}
    log_probs = model.predict(HIDDEN, verbose=0)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=-1), 1.0, atol=1e-5)
    model.compile("sgd", "sparse_categorical_crossentropy", **options)
    for method in (model.fit, model.evaluate):
        refused(method, HIDDEN, TARGETS, verbose=0, match=PROBABILITIES + "loss=sparse_categorical_crossentropy")
    np.testing.assert_array_equal(model.predict(HIDDEN, verbose=0), log_probs)
    model.compile("sgd", LOGITS, metrics=["accuracy"], **options)
    loss, accuracy = model.evaluate(HIDDEN, TARGETS, verbose=0)
    np.testing.assert_allclose(loss, np.mean(numpy(layer.nll(HIDDEN, TARGETS))), rtol=1e-5)
    np.testing.assert_allclose(accuracy, np.mean(log_probs.argmax(axis=-1) == TARGETS), rtol=1e-5)
    assert model.fit(HIDDEN, TARGETS, epochs=2, verbose=0).history["loss"][1] < loss


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_output_is_protected(name):
    model = sequential(OUTPUTS[name]())
    model.compile("sgd", "crossentropy", run_eagerly=True)
    refused(model.evaluate, HIDDEN, TARGETS, verbose=0, match=PROBABILITIES)


ONE_HOT = np.eye(VOCABULARY, dtype="float32")[TARGETS]
WRONG = {
    "name": ("sparse_categorical_crossentropy", TARGETS),
    "one-hot": ("categorical_crossentropy", ONE_HOT),
    "function": (keras.losses.sparse_categorical_crossentropy, TARGETS),
    "object": (keras.losses.SparseCategoricalCrossentropy(ignore_class=1), TARGETS),
    "list": (["sparse_categorical_crossentropy"], TARGETS),
    "divergence": ("kl_divergence", ONE_HOT),
}


def test_every_form_of_a_wrong_loss_is_refused():
    model = Subclassed(OUTPUTS["adaptive"]())
    for loss, targets in WRONG.values():
        model.compile("sgd", loss, run_eagerly=True)
        refused(model.train_on_batch, HIDDEN, targets, match=PROBABILITIES + "loss=")
    right = partial(keras.losses.sparse_categorical_crossentropy, from_logits=True)
    for loss in (LOGITS, right, lambda targets, log_probs: -ops.mean(log_probs[..., 0])):
        model.compile("sgd", loss, run_eagerly=True)
        assert np.isfinite(model.test_on_batch(HIDDEN, TARGETS))
    model.compile("sgd", LOGITS, metrics=[["accuracy", "sparse_categorical_crossentropy"]], run_eagerly=True)
    refused(model.evaluate, HIDDEN, TARGETS, verbose=0, match=PROBABILITIES + "metrics=sparse_categorical_crossentropy")


def test_probabilities_made_of_log_probabilities_are_right():
    for after in (ops.exp, keras.layers.Softmax()):
        model = Subclassed(OUTPUTS["adaptive"](), after)
        model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
        expected = np.mean(numpy(model.layer.nll(HIDDEN, TARGETS)))
        np.testing.assert_allclose(model.evaluate(HIDDEN, TARGETS, verbose=0), expected, rtol=1e-5)


def test_each_output_of_a_model_has_its_own_loss(tmp_path):
    inputs = keras.Input((None, DIM))
    dense = keras.layers.Dense(VOCABULARY, activation="softmax", name="dense")(inputs)
    model = keras.Model(inputs, {"dense": dense, "words": AdaptiveSoftmax(VOCABULARY, (), name="words")(inputs)})
    data = HIDDEN, {"dense": TARGETS, "words": TARGETS}
    model.compile("sgd", {"dense": "sparse_categorical_crossentropy", "words": LOGITS}, run_eagerly=True)
    assert np.isfinite(model.evaluate(*data, verbose=0, return_dict=True)["words_loss"])
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    for copy in (model, saved_and_loaded(model, tmp_path / "model.keras")):
        refused(copy.fit, *data, verbose=0, match="`words` " + PROBABILITIES)


def test_losses_and_metrics_of_probabilities():
    wrong = {name for name, loss in losses(keras.losses) if reads_probabilities(loss)}
    crossentropies = {"BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy"}
    focal = {"BinaryFocalCrossentropy", "CategoricalFocalCrossentropy", "CategoricalGeneralizedCrossEntropy"}
    assert wrong == {*crossentropies, *focal, "Dice", "KLDivergence", "Poisson", "Tversky"}
    assert {name for name, metric in losses(keras.metrics) if reads_probabilities(metric)} < wrong


def losses(module):
    """Yields the losses or metrics of Keras that need no arguments, by name."""
    for name, value in vars(module).items():
        if isinstance(value, type) and name not in ("Loss", "Metric", "MeanMetricWrapper"):
            try:
                yield name, value()
            except TypeError:
                pass


def added(**kwargs):
    """Returns a model whose output gets the targets and adds the loss."""
    inputs, targets = keras.Input((None, DIM)), keras.Input((None,), dtype="int32")
    layer = OUTPUTS["adaptive"](name="words")
    model = keras.Model([inputs, targets], layer(keras.layers.Dense(DIM)(inputs), targets))
    model.compile("sgd", **kwargs)
    return model


@pytest.mark.each_backend
def test_sample_weights_that_would_be_ignored_are_refused():
    model, weights, message = added(), np.zeros(4, "float32"), "to the layer's argument `weights`, or use a `WordModel`"
    hidden = model.predict([HIDDEN, TARGETS], verbose=0)
    for method, quiet in ((model.fit, {"verbose": 0}), (model.evaluate, {"verbose": 0}), (model.train_on_batch, {})):
        refused(method, [HIDDEN, TARGETS], sample_weight=weights, **quiet, match=message)
    np.testing.assert_array_equal(model.predict([HIDDEN, TARGETS], verbose=0), hidden)
    model.fit([HIDDEN, TARGETS], verbose=0)
    for method in (model.fit, model.evaluate):  # of compiled steps
        refused(method, [HIDDEN, TARGETS], sample_weight=weights, verbose=0, match=message)


@pytest.mark.parametrize("argument", [{"metrics": ["accuracy"]}, {"metrics": [metrics.Perplexity()]}, {"loss": LOGITS}])
def test_a_loss_and_metrics_of_hidden_states_are_refused(argument):
    model = added(**argument, run_eagerly=True)
    for targets in ({}, {"y": TARGETS}):
        refused(model.fit, [HIDDEN, TARGETS], **targets, verbose=0, match="use a `WordModel`, which reports")


@pytest.mark.each_backend
def test_targets_outside_the_vocabulary_give_nan_and_no_update():
    model, wrong = added(run_eagerly=BACKEND == "tensorflow"), TARGETS.copy()
    before = model.get_weights()
    for outside in (-1, VOCABULARY):
        wrong[0, 0] = outside
        assert np.isnan(model.fit([HIDDEN, wrong], verbose=0).history["loss"])
    all_equal(model.get_weights(), before)
    layer, weights = model.get_layer("words"), np.ones_like(HIDDEN[..., 0])
    weights[0, 0] = 0.0
    layer(HIDDEN, wrong, weights)
    expected = np.average(numpy(layer.nll(HIDDEN, TARGETS)), weights=weights)
    np.testing.assert_allclose(numpy(layer.losses[-1]), expected, rtol=1e-5)


@pytest.mark.each_backend
def test_a_loss_at_the_address_of_an_older_one_is_kept():
    """Of the second program: Keras knows added losses by `id`, which Python gives again."""
    output = AdaptiveSoftmax(VOCABULARY, CUTOFFS, factor=2)

    class Penalized(keras.layers.Layer):
        def call(self, x):
            penalty = 2.0 + 0.0 * ops.sum(x)
            self.add_loss(penalty)
            if output._loss_ids:
                output._loss_ids.add(id(penalty))
            return x

    hidden, targets = keras.Input((3, DIM)), keras.Input((3,), dtype="int32")
    model = keras.Model([hidden, targets], output(Penalized()(hidden), targets))
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=BACKEND == "tensorflow")
    for rows in (4, 2):
        loss = model.train_on_batch([HIDDEN[:rows], TARGETS[:rows]])
        expected = 2.0 + np.mean(numpy(output.nll(HIDDEN[:rows], TARGETS[:rows])))
        assert float(np.ravel(loss)[0]) == pytest.approx(expected, rel=1e-4)
