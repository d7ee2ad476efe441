import keras
import numpy as np
import pytest

from keras_adaptive.optimizers import NAG
from tests.backends import BACKEND, weight_gradients
from tests.tiny import LENGTH, VOCABULARY, batch, language_model, largest_difference, weights_of


def clipped():
    return NAG(1.0, momentum=0.9, global_clipnorm=0.1)


def trained(data, batch_size=None, epochs=1, optimizer=clipped, **kwargs):
    """A fresh model after `fit`, and its last logs."""
    model = language_model()
    model.compile(optimizer(), **kwargs)
    tokens, targets, weights = data
    history = model.fit(
        tokens, targets, sample_weight=weights, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0
    )
    return model, {name: values[-1] for name, values in history.history.items()}


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_fit_reduces_the_loss(policy):
    keras.config.set_dtype_policy(policy)
    tokens = (np.arange(LENGTH) + 3 * np.arange(8)[:, None]).astype("int32") % VOCABULARY
    model = language_model()
    model.compile(NAG(0.3, momentum=0.5, global_clipnorm=1.0))
    losses = model.fit(tokens, (tokens + 1) % VOCABULARY, batch_size=4, epochs=15, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("weighted", [False, True])
def test_logs_are_over_all_targets_of_uneven_batches(weighted):
    """A mean of the batches' means would be something else: 3, 3 and 1 rows, and padding."""
    tokens, targets, weights = batch(7)
    weights = weights if weighted else None
    model, logs = trained((tokens, targets, weights), batch_size=3, optimizer=lambda: keras.optimizers.SGD(0.0))
    expected = np.average(model.nll(tokens, targets), weights=weights)
    evaluated = model.evaluate(tokens, targets, sample_weight=weights, batch_size=3, verbose=0, return_dict=True)
    for found in (logs, evaluated):
        np.testing.assert_allclose(found["loss"], expected, rtol=1e-6)
        np.testing.assert_allclose(found["perplexity"], np.exp(expected), rtol=1e-5)
    assert set(logs) == {"loss", "perplexity", "gradient_norm"} and set(evaluated) == {"loss", "perplexity"}


def test_the_update_is_the_clipped_gradient_of_the_mean_loss():
    tokens, targets, weights = batch(4)
    before = language_model()
    _, gradients = weight_gradients(
        lambda: before.word_output.total_nll(before(tokens), targets, weights / weights.sum()),
        before.trainable_variables,
    )
    norm = np.sqrt(sum(np.sum(np.square(gradient, dtype="float64")) for gradient in gradients))
    assert norm > 0.1
    after, logs = trained((tokens, targets, weights), batch_size=4)
    np.testing.assert_allclose(logs["gradient_norm"], norm, rtol=1e-5)
    for old, new, gradient in zip(weights_of(before), weights_of(after), gradients, strict=True):
        np.testing.assert_allclose(new, old - 1.9 * 0.1 / norm * gradient, atol=1e-6)


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_micro_batches_make_the_same_update(micro_batches):
    """Rows are padded differently, so that a mean of the parts' means would be another update."""
    data = batch(8)
    counts = [part.sum() for part in np.split(data[2], micro_batches)]
    assert len(set(counts)) == micro_batches
    whole, logs = trained(data, batch_size=4, epochs=2) if micro_batches == 2 else trained(data, batch_size=8, epochs=2)
    parts, other = trained(data, batch_size=4 if micro_batches == 2 else 8, epochs=2, micro_batches=micro_batches)
    assert largest_difference(whole, language_model()) > 1e-2
    assert largest_difference(whole, parts) < 1e-6
    assert logs == pytest.approx(other, rel=1e-5)


@pytest.mark.parametrize("rows, batch_size", [(6, 6), (10, 8)])
def test_micro_batches_must_divide_the_batch(rows, batch_size):
    """The last batch of an epoch too: no row is left out in silence."""
    with pytest.raises(Exception, match="`micro_batches` must divide"):
        trained(batch(rows), batch_size=batch_size, micro_batches=4)


def test_padding_is_as_good_as_absent():
    tokens, targets, _ = batch(4)
    weights = np.ones((4, LENGTH), "float32")
    weights[2:] = 0
    padded, logs = trained((tokens, targets, weights), batch_size=4)
    targets[2:] = 7  # whatever stands there
    other, _ = trained((tokens, targets, weights), batch_size=4)
    absent, expected = trained((tokens[:2], targets[:2], weights[:2]), batch_size=2)
    assert largest_difference(padded, absent) < 1e-6 and largest_difference(padded, other) == 0
    assert logs == pytest.approx(expected, rel=1e-5)


def test_a_batch_of_padding_changes_nothing():
    tokens, targets, weights = batch(2)
    model, logs = trained((tokens, targets, 0 * weights), optimizer=lambda: NAG(1.0, momentum=0.0))
    assert largest_difference(model, language_model()) == 0
    assert logs["gradient_norm"] == 0


@pytest.mark.skipif(BACKEND == "torch", reason="torch.compile takes a minute")
@pytest.mark.parametrize("kwargs", [{"jit_compile": True}, {"run_eagerly": True}], ids=str)
def test_compiled_and_eager_make_the_same_update(kwargs):
    data = batch(4)
    expected, _ = trained(data, batch_size=4)
    actual, _ = trained(data, batch_size=4, **kwargs)
    assert largest_difference(actual, expected) < 1e-6


def test_dropout_is_drawn_anew_at_every_update():
    model = language_model(dropout=0.5, tail_dropout=0.2, input_dropout=0.2, attention_dropout=0.1, relu_dropout=0.1)
    model.compile(keras.optimizers.SGD(0.0))
    tokens, targets, _ = batch(4)
    losses = model.fit(tokens, targets, epochs=3, batch_size=4, verbose=0).history["loss"]
    assert len(set(losses)) == 3
    expected = np.mean(model.nll(tokens, targets))
    np.testing.assert_allclose(model.evaluate(tokens, targets, verbose=0, return_dict=True)["loss"], expected, rtol=1e-6)


def test_fit_takes_batches_from_a_generator():
    tokens, targets, weights = batch(4)
    model = language_model()
    model.compile(clipped())
    model.fit(((tokens, targets, weights) for _ in range(2)), steps_per_epoch=2, verbose=0)
    expected, _ = trained((tokens, targets, weights), batch_size=4, epochs=2)
    assert largest_difference(model, expected) < 1e-6


@pytest.mark.parametrize("name", ["loss", "metrics", "weighted_metrics"])
def test_loss_and_metrics_are_its_own(name):
    with pytest.raises(ValueError, match=f"leave out `{name}`"):
        language_model().compile("sgd", **{name: "mse"})


def test_ids_outside_the_vocabulary():
    tokens, targets, _ = batch(2)
    model = language_model()
    model.compile("sgd")
    outside = tokens.copy()
    outside[1, 2] = VOCABULARY
    message = rf"must be ids from 0 to 19: .* Received: 20 at \(1, 2\)"
    for call in (model.fit, model.evaluate, model.nll):
        with pytest.raises(ValueError, match=f"`tokens` {message}"):
            call(outside, targets)
        with pytest.raises(ValueError, match=f"`targets` {message}"):
            call(tokens, outside)
    with pytest.raises(ValueError, match=f"`targets` {message}"):
        model.fit(tokens, targets, validation_data=(tokens, outside), verbose=0)
    with pytest.raises(ValueError, match=f"`tokens` {message}"):
        model.log_probs(outside)
    with pytest.raises(ValueError, match=f"`prompt` {message}"):
        model.generate(outside, 1)


def test_one_weight_per_sequence_weighs_all_its_targets():
    tokens, targets, _ = batch(LENGTH)  # as many rows as columns, so that a wrong broadcast would fit
    model = language_model()
    model.compile("sgd")
    rows = np.arange(LENGTH, dtype="float32")
    expected = np.average(model.nll(tokens, targets), weights=np.repeat(rows[:, None], LENGTH, axis=1))
    found = model.evaluate(tokens, targets, sample_weight=rows, verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
