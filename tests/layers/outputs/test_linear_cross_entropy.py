"""A softmax with the weights of a layer of Keras has the loss and the gradients of that layer's logits."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import LinearCrossEntropy
from keras_adaptive.losses import CrossEntropy
from keras_adaptive.models import WordModel
from tests.support.backends import numpy, weight_gradients
from tests.support.closeness import all_close
from tests.support.refusals import refused

CLASSES, DIM, ROWS = 11, 6, 7
RANDOM = np.random.default_rng(0)
HIDDEN = RANDOM.normal(size=(ROWS, DIM)).astype("float32")
TARGETS = np.array([0, 10, 3, 3, 7, 1, 9])
WEIGHTS = np.array([1, 0.5, 2, 0, 1, 1, 3], "float32")

HEADS = {
    "Dense": lambda: keras.layers.Dense(CLASSES, bias_initializer="normal"),
    "Dense without bias": lambda: keras.layers.Dense(CLASSES, use_bias=False),
    "Embedding": lambda: keras.layers.Embedding(CLASSES, DIM),
    "tied": lambda: keras.layers.ReversibleEmbedding(CLASSES, DIM, embeddings_initializer="normal"),
    "untied, capped": lambda: keras.layers.ReversibleEmbedding(CLASSES, DIM, tie_weights=False, logit_soft_cap=0.1),
}


def logits_of(head, hidden):
    if isinstance(head, keras.layers.Dense):
        return head(hidden)
    if isinstance(head, keras.layers.ReversibleEmbedding):
        return head(hidden, reverse=True)
    return ops.matmul(hidden, ops.transpose(head.embeddings))


def total_of(logits, weights=WEIGHTS):
    losses = keras.losses.sparse_categorical_crossentropy(TARGETS, logits, from_logits=True)
    return ops.sum(ops.convert_to_tensor(weights) * losses)


@pytest.mark.parametrize("name", HEADS)
def test_loss_and_gradients_are_those_of_the_logits(name):
    head = HEADS[name]()
    layer = LinearCrossEntropy(tied_to=head)
    hidden = keras.Variable(HIDDEN)
    layer.attach(HIDDEN)
    variables = [hidden, *head.trainable_variables]
    expected, gradients = weight_gradients(lambda: total_of(logits_of(head, hidden.value)), variables)
    loss, found = weight_gradients(lambda: layer.training_loss(hidden.value, TARGETS, WEIGHTS), variables)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    used = [gradient for gradient in gradients if gradient is not None]
    all_close([gradient for gradient in found if gradient is not None], used, atol=2e-6)
    assert len(used) > 1
    log_probs = numpy(ops.log_softmax(logits_of(head, HIDDEN)))
    all_close(numpy(layer.log_probs(HIDDEN)), log_probs, atol=2e-6)
    all_close(numpy(layer.nll(HIDDEN, TARGETS)), -log_probs[np.arange(ROWS), TARGETS], atol=2e-6)


def test_rows_that_pad_the_table_have_no_probability():
    head = keras.layers.Dense(16, bias_initializer="normal")
    layer = LinearCrossEntropy(tied_to=head, vocabulary_size=CLASSES, logit_scale=0.5)
    log_probs = numpy(layer.log_probs(HIDDEN))
    logits = 0.5 * (HIDDEN @ numpy(head.kernel)) + numpy(head.bias)
    all_close(log_probs, numpy(ops.log_softmax(logits[:, :CLASSES])), atol=2e-6)
    loss, (of_kernel, of_bias) = weight_gradients(
        lambda: layer.training_loss(HIDDEN, TARGETS), head.trainable_variables
    )
    assert np.any(of_kernel[:, :CLASSES]) and not np.any(of_kernel[:, CLASSES:]) and not np.any(of_bias[CLASSES:])


def test_a_frozen_table_has_no_gradient_and_hidden_states_the_same(monkeypatch):
    head = HEADS["Dense"]()
    layer, hidden = LinearCrossEntropy(tied_to=head), keras.Variable(HIDDEN)
    layer.attach(HIDDEN)
    compute = lambda: layer.training_loss(hidden.value, TARGETS, WEIGHTS)  # noqa: E731
    _, (expected, of_kernel, _) = weight_gradients(compute, [hidden, *head.trainable_variables])
    assert np.any(of_kernel)
    variables = head.trainable_variables
    head.trainable = False
    loss, gradients = weight_gradients(compute, [hidden, *variables])
    all_close(gradients[0], expected, atol=1e-7)
    assert all(gradient is None or not np.any(gradient) for gradient in gradients[1:])


def in_dtype(make, dtype):
    with_dtype = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        return make()
    finally:
        keras.config.set_dtype_policy(with_dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "mixed_bfloat16", "mixed_float16"])
def test_gradients_of_narrow_tables_are_those_of_float64_to_their_rounding(dtype):
    head = in_dtype(HEADS["Dense"], dtype)
    layer = LinearCrossEntropy(tied_to=head)
    layer.attach(HIDDEN)
    hidden = keras.Variable(HIDDEN, dtype=layer.compute_dtype)
    compute = lambda: layer.training_loss(hidden.value, TARGETS, WEIGHTS)  # noqa: E731
    loss, gradients = weight_gradients(compute, [hidden, *head.trainable_variables])
    narrow = [ops.cast(one, layer.compute_dtype) for one in (hidden, *head.trainable_variables)]
    x, kernel, bias = (numpy(ops.cast(one, "float32")).astype("float64") for one in narrow)
    logits = x @ kernel + bias
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    assert loss == pytest.approx(-WEIGHTS @ np.log(probabilities[np.arange(ROWS), TARGETS]), rel=1e-3)
    d_logits = WEIGHTS[:, None] * (probabilities - np.eye(CLASSES)[TARGETS])
    rounding = 2.0**-8 if "bfloat16" in dtype else 2.0**-11
    for found, exact in zip(gradients, (d_logits @ kernel.T, x.T @ d_logits, d_logits.sum(axis=0)), strict=True):
        difference = numpy(ops.cast(found, "float32")) - exact
        assert np.abs(difference).max() <= 2 * rounding * np.abs(exact).max()


@pytest.mark.filterwarnings("ignore:The use of `x.T`")  # by Keras under torch
@pytest.mark.parametrize("name", ["Dense", "tied", "untied, capped"])
def test_a_quantized_head_keeps_its_logits(name):
    head, hidden = HEADS[name](), keras.Variable(HIDDEN)
    head.build((None, DIM) if isinstance(head, keras.layers.Dense) else None)
    _, (of_floats,) = weight_gradients(lambda: total_of(logits_of(head, hidden.value)), [hidden])
    head.quantize("int8")
    layer = LinearCrossEntropy(tied_to=head)
    layer.attach(HIDDEN)
    of_keras, (gradient,) = weight_gradients(lambda: total_of(logits_of(head, hidden.value)), [hidden])
    loss, (found,) = weight_gradients(lambda: layer.training_loss(hidden.value, TARGETS, WEIGHTS), [hidden])
    np.testing.assert_allclose(loss, of_keras, rtol=1e-6)
    if name == "Dense":  # in a ReversibleEmbedding of Keras no gradient passes the rounding
        all_close(found, gradient, atol=2e-6)
    assert np.abs(numpy(found) - numpy(of_floats)).max() < 0.05 * np.abs(numpy(of_floats)).max()


def model_of(head, hidden_of=lambda x: x):
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(CLASSES, DIM, name="words")(ids)
    return WordModel(ids, hidden, word_output=LinearCrossEntropy(tied_to=head, loss=CrossEntropy(0.1)))


@pytest.mark.parametrize("name", ["Dense", "untied, capped"])
def test_files_hold_the_layer_and_its_loss(name, tmp_path):
    model, tokens = model_of(HEADS[name]()), TARGETS[None]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.word_output.loss.get_config() == model.word_output.loss.get_config()
    hidden = model.predict(tokens, verbose=0)
    all_close(numpy(loaded.word_output.log_probs(hidden)), numpy(model.word_output.log_probs(hidden)), atol=0)


REFUSED = [
    (
        {"tied_to": keras.layers.LSTM(4)},
        r"`tied_to` must be the layer whose weights give the logits.* Received: a LSTM",
    ),
    ({"tied_to": keras.layers.Dense(4, "relu")}, "pass activation=None or 'softmax'.* activation='relu'"),
    ({"tied_to": keras.layers.Dense(4), "vocabulary_size": 5}, "must be from 1 to 4. Received: vocabulary_size=5"),
    (
        {"tied_to": HEADS["untied, capped"](), "loss": CrossEntropy(soft_cap=5.0)},
        "bounds its logits by 0.1: leave out the `soft_cap` of the loss. Received: soft_cap=5.0",
    ),
]


@pytest.mark.once
@pytest.mark.parametrize("arguments, message", REFUSED)
def test_what_is_refused(arguments, message):
    refused(LinearCrossEntropy, **arguments, match=message)


@pytest.mark.once
def test_quantized_and_unfitting_layers_are_refused():
    head = keras.layers.Dense(CLASSES)
    head.build((None, DIM))
    head.quantize("int4")
    refused(LinearCrossEntropy(tied_to=head).nll, HIDDEN, TARGETS, match="quantized to int8.* a Dense with .*int4")
    head = HEADS["Embedding"]()
    refused(LinearCrossEntropy(tied_to=head).nll, HIDDEN[:, :4], TARGETS, match="dimension 6. Received: dimension 4")
