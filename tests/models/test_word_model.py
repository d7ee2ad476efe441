"""A user's functional model with an output for words: weights, masks, metrics and copies, by Keras' own loop."""

import io

import keras
import numpy as np
import pytest

from keras_adaptive import losses
from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.models import WordModel
from tests.support.backends import BACKEND, numpy, weight_gradients
from tests.support.closeness import all_close
from tests.support.refusals import refused
from tests.support.tiny import LENGTH, VOCABULARY, batch, compiled, largest_difference, last, weights_of
from tests.support.weights import randomize

DIM, CUTOFFS = 8, (5,)
TOKENS, TARGETS, WEIGHTS = batch(4)
MASKED = np.where(np.arange(LENGTH) < [[6], [3], [1], [4]], np.maximum(TOKENS, 1), 0)  # 0 is padding


def word_model(**kwargs):
    ids = keras.Input((LENGTH,), dtype="int32")
    words = AdaptiveEmbedding(VOCABULARY, DIM, CUTOFFS, factor=2, name="words")
    softmax = AdaptiveSoftmax(VOCABULARY, CUTOFFS, tied_to=words, name="softmax")
    hidden = keras.layers.Dense(DIM, activation="tanh", **kwargs)(words(ids))
    return randomize(WordModel(ids, hidden, word_output=softmax))


def masked():
    """An embedding that masks padding, which the layers after it hand on."""
    ids = keras.Input((LENGTH,), dtype="int32")
    hidden = keras.layers.LSTM(DIM, return_sequences=True)(keras.layers.Embedding(VOCABULARY, DIM, mask_zero=True)(ids))
    return ids, hidden, AdaptiveSoftmax(VOCABULARY, CUTOFFS, factor=2, name="softmax")


def truth(model, tokens, targets):
    """Returns the loss and the hit of every target by the log-probabilities of all words."""
    log_probs = numpy(model.word_output.log_probs(model(tokens)))
    nll = -np.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
    return nll, log_probs.argmax(axis=-1) == targets


@pytest.mark.parametrize("per", ["target", "row"])
def test_the_update_is_the_gradient_of_the_weighted_mean(per):
    weights = WEIGHTS if per == "target" else WEIGHTS[:, 1] + 0.5
    every = np.broadcast_to(weights.reshape(4, -1), (4, LENGTH))
    before, after = word_model(), compiled(word_model(), keras.optimizers.SGD(1.0))
    _, gradients = weight_gradients(
        lambda: before.word_output.total_nll(before(TOKENS), TARGETS, every / every.sum()), before.trainable_variables
    )
    after.fit(TOKENS, TARGETS, sample_weight=weights, verbose=0)
    expected = [old - gradient for old, gradient in zip(weights_of(before), gradients, strict=True)]
    all_close(weights_of(after), expected, atol=1e-6)


def test_weights_of_zero_train_nothing():
    model = compiled(word_model(), keras.optimizers.SGD(1.0))
    logs = model.fit(TOKENS, TARGETS, sample_weight=0 * WEIGHTS, verbose=0).history
    assert logs["loss"] == [0.0]
    assert largest_difference(model, word_model()) == 0.0


def test_logs_are_over_all_targets_of_uneven_batches():
    """Perplexity and accuracy by the probabilities of all words, in graphs: 4, 4 and 1 rows, and padding."""
    tokens, targets, weights = batch(9)
    model = word_model()
    nll, hits = truth(model, tokens, targets)
    targets = np.where(np.arange(LENGTH) == 0, numpy(model.word_output.top_k(model(tokens), 1)[1])[..., 0], targets)
    nll, hits = truth(model, tokens, targets)
    assert 0 < np.average(hits, weights=weights) < 1
    model.compile(keras.optimizers.SGD(0.0), metrics=["accuracy"])
    options = {"sample_weight": weights, "batch_size": 4, "verbose": 0}
    logs = last(model.fit(tokens, targets, **options))
    evaluated = model.evaluate(tokens, targets, return_dict=True, **options)
    assert set(logs) - {"gradient_norm", "skipped"} == set(evaluated) == {"loss", "perplexity", "accuracy"}
    for found in (logs, evaluated):
        np.testing.assert_allclose(found["perplexity"], np.exp(np.average(nll, weights=weights)), rtol=1e-5)
        np.testing.assert_allclose(found["accuracy"], np.average(hits, weights=weights), rtol=1e-5)
    plain = compiled(model, "sgd").evaluate(tokens, targets, batch_size=9, verbose=0, return_dict=True)
    assert set(plain) == {"loss", "perplexity"}
    np.testing.assert_allclose([plain["loss"], np.log(plain["perplexity"])], nll.mean(), rtol=1e-5)


def test_masked_targets_do_not_count():
    ids, hidden, softmax = masked()
    model = compiled(WordModel(ids, hidden, word_output=softmax))
    nll, _ = truth(model, MASKED, TARGETS)
    expected = nll[MASKED > 0].mean()
    assert abs(expected - nll.mean()) > 1e-3
    np.testing.assert_allclose(model.evaluate(MASKED, TARGETS, verbose=0)[0], expected, rtol=1e-5)
    np.testing.assert_allclose(model.fit(MASKED, TARGETS, verbose=0).history["loss"][0], expected, rtol=1e-5)


def test_masked_targets_do_not_count_in_an_added_loss():
    ids, hidden, softmax = masked()
    next_ids, shares = keras.Input((LENGTH,), dtype="int32"), keras.Input((LENGTH,))
    plain = compiled(keras.Model([ids, next_ids], softmax(hidden, next_ids)), "sgd")
    weighted = compiled(keras.Model([ids, next_ids, shares], softmax(hidden, next_ids, shares)), "sgd")
    nll = numpy(softmax.nll(keras.Model(ids, hidden)(MASKED), TARGETS))
    for model, data, expected in [
        (plain, [MASKED, TARGETS], nll[MASKED > 0].mean()),
        (weighted, [MASKED, TARGETS, WEIGHTS], np.average(nll, weights=WEIGHTS * (MASKED > 0))),
    ]:
        np.testing.assert_allclose(model.evaluate(data, verbose=0), [expected, np.exp(expected)], rtol=1e-5)


@pytest.mark.parametrize("subclassed", [False, True])
def test_an_added_loss_reports_the_perplexity_of_all_targets_of_an_epoch(subclassed, tmp_path):
    """Batches have other weights, so exp of the mean of their losses would be another number."""
    tokens, targets, weights = batch(5)
    data = [tokens, targets, weights]
    smooth = losses.CrossEntropy(label_smoothing=0.1)
    softmax = AdaptiveSoftmax(VOCABULARY, (5, 10), factor=2, loss=smooth, name="words")
    words = keras.layers.Embedding(VOCABULARY, 8)
    if subclassed:
        model = Subclassed(words, softmax)
    else:
        inputs = [keras.Input((LENGTH,), dtype=dtype) for dtype in ("int32", "int32", "float32")]
        model = keras.Model(inputs, softmax(words(inputs[0]), *inputs[1:]))
    compiled(model, keras.optimizers.SGD(0.0))
    logs = model.fit(data, batch_size=2, epochs=2, shuffle=False, verbose=0).history
    expected = np.exp(np.average(numpy(softmax.nll(words(tokens), targets)), weights=weights))
    np.testing.assert_allclose(logs["perplexity"], expected, rtol=1e-5)
    assert abs(np.exp(logs["loss"][0]) / expected - 1) > 1e-3
    found = model.evaluate(data, batch_size=2, verbose=0, return_dict=True)
    assert [*found] == ["loss", "perplexity"] and found["perplexity"] == pytest.approx(expected, rel=1e-5)
    if not subclassed:
        model.save_weights(tmp_path / "model.weights.h5")
        model.load_weights(tmp_path / "model.weights.h5")


@pytest.mark.once
def test_two_outputs_that_add_their_losses_report_a_perplexity_each():
    ids, next_ids = keras.Input((LENGTH,), dtype="int32"), keras.Input((LENGTH,), dtype="int32")
    words = keras.layers.Embedding(VOCABULARY, DIM)
    outputs = {name: AdaptiveSoftmax(VOCABULARY, (), name=name) for name in ("next", "same")}
    hidden = words(ids)
    model = keras.Model([ids, next_ids], [outputs["next"](hidden, next_ids), outputs["same"](hidden, ids)])
    logs = compiled(model, "sgd").evaluate([TOKENS, TARGETS], verbose=0, return_dict=True)
    for name, expected in {"next": TARGETS, "same": TOKENS}.items():
        nll = numpy(outputs[name].nll(words(TOKENS), expected))
        assert logs.pop(f"{name}_perplexity") == pytest.approx(np.exp(nll.mean()), rel=1e-5)
    assert [*logs] == ["loss"]


class Subclassed(keras.Model):
    def __init__(self, words, softmax):
        super().__init__()
        self.words, self.softmax = words, softmax

    def call(self, inputs):
        return self.softmax(self.words(inputs[0]), inputs[1], inputs[2])


def test_losses_of_layers_are_added():
    model, plain = (compiled(word_model(**kwargs), "sgd") for kwargs in ({"activity_regularizer": "l2"}, {}))
    added = 0.01 * np.sum(np.square(numpy(plain(TOKENS)))) / 4
    logs, expected = (one.evaluate(TOKENS, TARGETS, verbose=0, return_dict=True) for one in (model, plain))
    np.testing.assert_allclose(logs["loss"], expected["loss"] + added, rtol=1e-5)
    assert logs["perplexity"] == pytest.approx(expected["perplexity"], rel=1e-6)


def test_copies_are_tied_and_say_the_same(tmp_path):
    model = compiled(word_model(), "adam", metrics="accuracy")
    model.fit(TOKENS, TARGETS, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    copy = WordModel.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    for other in (loaded, copy):
        assert other.word_output.tied_to is other.get_layer("words") is not model.get_layer("words")
        assert other.count_params() == model.count_params()
        assert largest_difference(model, other) == 0.0
    assert loaded.reports_accuracy and loaded.optimizer.built
    results = [one.evaluate(TOKENS, TARGETS, verbose=0, return_dict=True) for one in (model, loaded)]
    assert results[0] == pytest.approx(results[1]) and "accuracy" in results[1]
    refused(keras.models.clone_model, model, match="copy the model by `WordModel.from_config")


def test_batches_of_padding_do_not_count():
    """They change no mean of an evaluation or an epoch, whether weights of 0 or masks mark the padding."""
    weights = np.repeat([[1.0], [1.0], [0.0], [0.0]], LENGTH, axis=1)
    model = compiled(word_model(), keras.optimizers.SGD(0.0))
    expected = truth(model, TOKENS, TARGETS)[0][:2].mean()
    assert_means(model, expected, TOKENS, TARGETS, sample_weight=weights)
    ids, hidden, softmax = masked()
    model = compiled(WordModel(ids, hidden, word_output=softmax), keras.optimizers.SGD(0.0))
    padded = np.where(weights > 0, np.maximum(TOKENS, 1), 0)
    assert_means(model, truth(model, padded, TARGETS)[0][:2].mean(), padded, TARGETS)


def assert_means(model, expected, *data, **options):
    options = {**options, "batch_size": 2, "verbose": 0}
    for logs in (model.evaluate(*data, return_dict=True, **options), last(model.fit(*data, **options))):
        np.testing.assert_allclose([logs["loss"], np.log(logs["perplexity"])], expected, rtol=1e-5)


def test_micro_batches_make_the_same_update():
    """Micro-batches have different padding, losses of layers, accuracy and several inputs."""
    tokens, targets, weights = batch(8)
    found = []
    for parts in (1, 2):
        ids, shift = keras.Input((LENGTH,), dtype="int32", name="ids"), keras.Input((LENGTH, DIM), name="shift")
        dense = keras.layers.Dense(DIM, activation="tanh", kernel_regularizer="l2")
        hidden = keras.layers.Add()([dense(AdaptiveEmbedding(VOCABULARY, DIM, CUTOFFS, factor=2)(ids)), shift])
        model = randomize(WordModel([ids, shift], hidden, word_output=AdaptiveSoftmax(VOCABULARY, CUTOFFS, factor=2)))
        compiled(model, keras.optimizers.SGD(1.0, global_clipnorm=0.1), micro_batches=parts, metrics=["accuracy"])
        inputs = {"ids": tokens, "shift": np.ones((8, LENGTH, DIM), "float32")}
        logs = last(model.fit(inputs, targets, sample_weight=weights, batch_size=8, verbose=0))
        found.append((model, logs))
    assert largest_difference(found[0][0], found[1][0]) < 1e-6
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-5) and found[0][1]["gradient_norm"] > 0.1
    ids, hidden, softmax = masked()
    model = compiled(WordModel(ids, hidden, word_output=softmax), "sgd", micro_batches=2)
    match = "pass micro_batches=1, or no masks and `sample_weight` in their place"
    refused(model.fit, tokens, targets, verbose=0, match=match)


class Penalized(WordModel):
    """Adds half of the mean square of the hidden states to the loss."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        penalty = 0.5 * keras.ops.mean(keras.ops.square(y_pred))
        return super().compute_loss(x, y, y_pred, sample_weight, training) + penalty


@pytest.mark.parametrize("form", ["compute_loss", "train_step"])
def test_a_subclass_may_have_its_own_loss_or_step(form):
    """Losses, metrics and updates are those of the same loss that a layer adds."""
    kind = type("Own", (Penalized,), {"train_step": STEPS[BACKEND]} if form == "train_step" else {})
    found = []
    for own in (kind, WordModel):
        ids = keras.Input((LENGTH,), dtype="int32")
        hidden = AdaptiveEmbedding(VOCABULARY, DIM, CUTOFFS, factor=2)(ids)
        if own is WordModel:
            hidden = keras.layers.ActivityRegularization(l2=0.5 / (LENGTH * DIM))(hidden)
        model = randomize(own(ids, hidden, word_output=AdaptiveSoftmax(VOCABULARY, CUTOFFS, factor=2)))
        before = weights_of(model)
        compiled(model, keras.optimizers.SGD(0.5), metrics=["accuracy"])
        evaluated = model.evaluate(TOKENS, TARGETS, sample_weight=WEIGHTS, verbose=0, return_dict=True)
        logs = last(model.fit(TOKENS, TARGETS, sample_weight=WEIGHTS, verbose=0))
        found.append((logs, evaluated, [new - old for new, old in zip(weights_of(model), before, strict=True)]))
    (logs, evaluated, changes), (expected, expected_evaluated, others) = found
    assert logs == pytest.approx({name: expected[name] for name in logs}, rel=1e-5) and "loss" in logs
    assert evaluated == pytest.approx(expected_evaluated, rel=1e-5)
    all_close(changes, others, atol=1e-6)


def jax_step(model, state, data):
    import jax

    trainable, others, slots, metrics = state
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)

    def loss_of(trainable):
        hidden, _ = model.stateless_call(trainable, others, x, training=True)
        with pytest.raises(ValueError, match="call `stateless_compute_loss.*` in a `train_step` of your own"):
            model.compute_loss(x, y, hidden, weights)
        return model.stateless_compute_loss(trainable, others, metrics, x=x, y=y, y_pred=hidden, sample_weight=weights)

    (loss, _), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
    trainable, slots = model.optimizer.stateless_apply(slots, gradients, trainable)
    return {"loss": loss}, (trainable, others, slots, metrics)


def torch_step(model, data):
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    loss = model.compute_loss(x, y, model(x, training=True), weights)
    loss.backward()
    model.optimizer.apply([variable.value.grad for variable in model.trainable_variables], model.trainable_variables)
    return {"loss": loss}


def tensorflow_step(model, data):
    import tensorflow as tf

    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x, y, model(x, training=True), weights)
    model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return {"loss": loss}


STEPS = {"jax": jax_step, "torch": torch_step, "tensorflow": tensorflow_step}


@pytest.mark.once
def test_the_summary_shows_the_output():
    printed, model = io.StringIO(), compiled(word_model(), "sgd")
    layers, weights = len(model.layers), len(model.weights)
    model.summary(print_fn=lambda line: printed.write(line))
    assert "softmax (AdaptiveSoftmax)" in printed.getvalue() and f"{model.count_params():,}" in printed.getvalue()
    assert (len(model.layers), len(model.weights)) == (layers, weights)


def test_targets_outside_the_vocabulary_are_counted():
    weights = np.ones(TARGETS.shape, "float32")
    model = compiled(word_model(), "sgd")
    outside = np.where(np.arange(LENGTH) == 2, [[VOCABULARY], [-1], [3], [4]], TARGETS)
    batches = lambda targets, weights: ((TOKENS, targets, weights) for _ in range(2))  # noqa: E731
    good = {"validation_data": (TOKENS, TARGETS), "steps_per_epoch": 2, "shuffle": False, "verbose": 0}
    bad = good | {"validation_data": (TOKENS, outside)}
    match = "ids from 0 to 19, except for targets of weight 0: .* Received: {} ids outside"
    refused(model.fit, batches(outside, weights), **good, match=match.format(4))
    refused(model.fit, batches(TARGETS, weights), **bad, match=match.format(2))
    for method in (model.evaluate, model.train_on_batch, model.test_on_batch):
        refused(method, TOKENS, outside, match=match.format(2))
    for method in (model.train_on_batch, model.test_on_batch):
        method(TOKENS, TARGETS)  # is not refused for what came before
    logs = model.fit(batches(outside, weights * (np.arange(LENGTH) != 2)), **good).history
    assert set(logs) - {"gradient_norm", "skipped"} == {"loss", "perplexity", "val_loss", "val_perplexity"}


@pytest.mark.once
def test_arguments_may_be_given_by_position_as_in_keras():
    model, calls = compiled(word_model(), "sgd"), []
    counts = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: calls.append("epoch"))
    model.fit(TOKENS, TARGETS, 4, 2, 0, [counts])
    counts = keras.callbacks.LambdaCallback(on_test_end=lambda *_: calls.append("test"))
    model.evaluate(TOKENS, TARGETS, 4, 0, None, None, [counts])
    assert calls == ["epoch", "epoch", "test"]
    outside = np.where(np.arange(LENGTH) == 2, VOCABULARY, TARGETS)
    refused(model.fit, TOKENS, outside, 4, 1, 0, counts, match="Received: 4 ids outside")
    refused(model.fit, TOKENS, TARGETS, 4, 1, 0, None, 0.0, None, True, {0: 1.0}, match="pass `sample_weight`")
