from functools import partial

import keras
import numpy as np
import pytest

from keras_adaptive.callbacks import TerminateOnNonFinite
from keras_adaptive.models import Dropout, training_step
from keras_adaptive.ops.global_norm import global_norm
from keras_adaptive.optimizers import NAG
from tests.support.backends import BACKEND, weight_gradients
from tests.support.closeness import all_close
from tests.support.refusals import refused
from tests.support.tiny import LENGTH, VOCABULARY, batch, compiled, language_model, largest_difference, last, weights_of

pytestmark = pytest.mark.usefixtures("eager_predictions")
TOKENS, TARGETS, WEIGHTS = batch(4)


def clipped():
    return NAG(1.0, momentum=0.9, global_clipnorm=0.1)


def trained(data, batch_size=None, epochs=1, optimizer=clipped, **kwargs):
    """A fresh model after `fit`, and its last logs."""
    model = compiled(language_model(), optimizer(), **kwargs)
    tokens, targets, weights = data
    how = {"batch_size": batch_size, "epochs": epochs, "shuffle": False, "verbose": 0}
    return model, last(model.fit(tokens, targets, sample_weight=weights, **how))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_fit_reduces_the_loss(policy):
    keras.config.set_dtype_policy(policy)
    tokens = (np.arange(LENGTH) + 3 * np.arange(8)[:, None]).astype("int32") % VOCABULARY
    model = compiled(language_model(), NAG(0.5, momentum=0.5, global_clipnorm=1.0), run_eagerly=False)
    losses = model.fit(tokens, (tokens + 1) % VOCABULARY, batch_size=8, epochs=12, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.5 * losses[0]


def test_logs_are_over_all_targets_of_uneven_batches():
    """A mean of the batches' means would be something else: 4, 4 and 1 rows, and padding."""
    tokens, targets, weights = batch(9)
    still = lambda: keras.optimizers.SGD(0.0)  # noqa: E731
    model, logs = trained((tokens, targets, weights), batch_size=4, optimizer=still, run_eagerly=False)
    nll = model.nll(tokens, targets)
    batches = ((tokens[rows], targets[rows], weights[rows]) for rows in (slice(4), slice(4, 8), slice(8, 9)))
    for counted, found in [
        (weights, logs),
        (weights, last(model.fit(batches, steps_per_epoch=3, shuffle=False, verbose=0))),
        (weights, model.evaluate(tokens, targets, sample_weight=weights, batch_size=4, verbose=0, return_dict=True)),
        (None, model.evaluate(tokens, targets, batch_size=4, verbose=0, return_dict=True)),
    ]:
        expected = np.average(nll, weights=counted)
        np.testing.assert_allclose(found["loss"], expected, rtol=1e-6)
        np.testing.assert_allclose(found["perplexity"], np.exp(expected), rtol=1e-5)
    assert set(logs) == {"loss", "perplexity", "gradient_norm", "skipped"} and set(found) == {"loss", "perplexity"}


def test_the_update_is_the_clipped_gradient_of_the_mean_loss():
    before = language_model()
    _, gradients = weight_gradients(
        lambda: before.word_output.total_nll(before(TOKENS), TARGETS, WEIGHTS / WEIGHTS.sum()),
        before.trainable_variables,
    )
    norm = np.sqrt(sum(np.sum(np.square(gradient, dtype="float64")) for gradient in gradients))
    assert norm > 0.1
    after, logs = trained((TOKENS, TARGETS, WEIGHTS), batch_size=4)
    np.testing.assert_allclose(logs["gradient_norm"], norm, rtol=1e-5)
    expected = [old - 1.9 * 0.1 / norm * gradient for old, gradient in zip(weights_of(before), gradients, strict=True)]
    all_close(weights_of(after), expected, atol=1e-6)


def test_a_frozen_body_is_left_alone():
    model = language_model()
    model.body.trainable = False
    compiled(model, clipped())
    frozen, trained = model.body.get_weights(), weights_of(model)
    model.fit(TOKENS, TARGETS, sample_weight=WEIGHTS, batch_size=4, verbose=0)
    assert len(model.optimizer.momentums) == len(trained) > 0
    assert all(map(np.array_equal, model.body.get_weights(), frozen))
    assert not any(map(np.array_equal, weights_of(model), trained))


def test_a_bound_beyond_float32_clips_nothing():
    optimizers = [partial(NAG, 1.0, global_clipnorm=bound) for bound in (None, 1e39, 1e308)]
    free, *bounded = (trained(batch(4), optimizer=one, batch_size=4)[0] for one in optimizers)
    assert all(largest_difference(model, free) == 0 for model in bounded) and np.isfinite(weights_of(free)[0]).all()


def test_the_norm_is_computed_once_and_the_optimizer_does_not_clip_again(monkeypatch):
    """A second clip would change nothing, and cost a pass over all gradients."""
    bounds, norms = [], []
    monkeypatch.setattr(training_step, "global_norm", lambda gradients: norms.append(1) or global_norm(gradients))

    class Watched(NAG):
        def apply(self, *arguments):
            bounds.append(self.global_clipnorm)
            super().apply(*arguments)

    model, _ = trained(batch(4), optimizer=lambda: Watched(1.0, global_clipnorm=0.1), batch_size=4)
    assert len(norms) == 1 and bounds and set(bounds) == {None}
    assert model.optimizer.global_clipnorm == 0.1


def test_micro_batches_make_the_same_update():
    """Rows are padded differently, so that a mean of the parts' means would be another update."""
    data = batch(8)
    assert len({part.sum() for part in np.split(data[2], 2)}) == 2
    whole, logs = trained(data, batch_size=8, epochs=2)
    parts, other = trained(data, batch_size=8, epochs=2, micro_batches=2, run_eagerly=False)
    assert largest_difference(whole, language_model()) > 1e-2
    assert largest_difference(whole, parts) < 1e-6
    assert logs == pytest.approx(other, rel=1e-5)


@pytest.mark.once
def test_micro_batches_must_divide_every_batch():
    """The last one of an epoch too: no row is left out in silence."""
    with pytest.raises(Exception, match="`micro_batches` must divide the batch. Received: micro_batches=2"):
        trained(batch(5), batch_size=4, micro_batches=2, run_eagerly=False)


def test_padding_is_as_good_as_absent():
    weights = np.ones((4, LENGTH), "float32")
    weights[2:] = 0
    padded, logs = trained((TOKENS, TARGETS, weights), batch_size=4)
    absent, expected = trained((TOKENS[:2], TARGETS[:2], weights[:2]), batch_size=2)
    assert largest_difference(padded, absent) < 1e-6
    assert logs == pytest.approx(expected, rel=1e-5)


def test_a_batch_of_padding_changes_nothing():
    tokens, targets, weights = batch(2)
    model, logs = trained((tokens, targets, 0 * weights), optimizer=lambda: NAG(1.0, momentum=0.0))
    assert largest_difference(model, language_model()) == 0
    assert logs["gradient_norm"] == 0


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the others have one way each, which every test here takes")
@pytest.mark.graph_optimizer
@pytest.mark.parametrize("jit_compile", [False, True])
def test_graphs_make_the_same_update(jit_compile):
    data = batch(4)
    expected, _ = trained(data, batch_size=4)
    actual, _ = trained(data, batch_size=4, run_eagerly=False, jit_compile=jit_compile)
    assert largest_difference(actual, expected) < 1e-6


def test_float16_skips_an_update_that_overflows():
    """A model of this policy scales its loss whatever the global policy; the logs are not scaled."""
    model = compiled(language_model(dtype="mixed_float16"), keras.optimizers.SGD(1.0))
    before = weights_of(model)
    expected = np.average(model.nll(TOKENS, TARGETS), weights=WEIGHTS)
    model.optimizer.build(model.trainable_variables)
    for scale, moves in ((2.0**40, False), (2.0**10, True)):
        model.optimizer.dynamic_scale.assign(scale)
        logs = model.fit(TOKENS, TARGETS, sample_weight=WEIGHTS, batch_size=4, verbose=0).history
        np.testing.assert_allclose(logs["loss"], expected, rtol=0.01)
        assert any((new != old).any() for new, old in zip(weights_of(model), before, strict=True)) == moves


@pytest.mark.parametrize("eager", [True, False] if BACKEND == "tensorflow" else [False])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_an_update_that_is_not_finite_is_skipped_and_counted(policy, eager):
    """Weights and optimizer stay as they were, but for the loss scale; the mean loss is that of the other updates."""
    model = compiled(language_model(dtype=policy), clipped(), run_eagerly=eager)
    nan = np.where(np.arange(LENGTH) == 1, np.nan, WEIGHTS)
    seen = []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: seen.append(([*map(np.copy, weights_of(look.model)), *slots(model)], logs))
    )
    data = [(TOKENS, TARGETS, one) for one in (WEIGHTS, nan, WEIGHTS, nan)]
    history = model.fit((one for one in data), steps_per_epoch=4, shuffle=False, verbose=0, callbacks=[look]).history
    (first, _), (second, bad), (third, good), (fourth, _) = seen
    same = [[np.array_equal(one, other) for one, other in zip(*pair)] for pair in ((first, second), (second, third))]
    assert all(same[0]) and not all(same[1])
    assert all(np.array_equal(one, other) for one, other in zip(third, fourth))
    assert [logs["skipped"] for _, logs in seen] == [0, 1, 1, 2] and history["skipped"] == [2]
    assert np.isnan([bad["loss"], bad["perplexity"], bad["gradient_norm"]]).all()
    assert np.isfinite([good["loss"], good["perplexity"], good["gradient_norm"]]).all()
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 2
    if policy == "mixed_float16":
        assert float(keras.ops.convert_to_numpy(model.optimizer.dynamic_scale)) == 2.0**15 / 4


def slots(model):
    """The momentums and the number of updates."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return [np.copy(keras.ops.convert_to_numpy(one.value)) for one in (optimizer.iterations, *optimizer.momentums)]


def test_float16_recovers_from_overflows():
    """Updates are lost until the far too large scale fits; then the model learns."""
    model = compiled(
        language_model(dtype="mixed_float16"),
        keras.optimizers.LossScaleOptimizer(NAG(0.5, momentum=0.5, global_clipnorm=1.0), initial_scale=2.0**30),
        run_eagerly=False,
    )
    history = model.fit(TOKENS, TARGETS, batch_size=4, epochs=25, verbose=0).history
    lost = int(sum(history["skipped"]))
    assert 3 < lost < 20 and history["skipped"] == [1.0] * lost + [0.0] * (25 - lost)
    assert np.isfinite(history["loss"]).all() and history["loss"][-1] < 0.8 * history["loss"][0]


def test_dropout_is_drawn_anew_at_every_update():
    model = language_model(dropout=Dropout(blocks=0.5, attention=0.1, activation=0.1, tail=0.2, input=0.2))
    compiled(model, keras.optimizers.SGD(0.0))
    losses = model.fit(TOKENS, TARGETS, epochs=3, batch_size=4, verbose=0).history["loss"]
    assert len(set(losses)) == 3
    evaluated = model.evaluate(TOKENS, TARGETS, verbose=0, return_dict=True)
    np.testing.assert_allclose(evaluated["loss"], np.mean(model.nll(TOKENS, TARGETS)), rtol=1e-6)


def test_ids_outside_the_vocabulary():
    tokens, targets, _ = batch(2)
    model = compiled(language_model(), "sgd")
    outside = tokens.copy()
    outside[1, 2] = VOCABULARY
    message = r"must be ids from 0 to 19: .* Received: the id 20 at \(1, 2\)"
    for call in (model.fit, model.evaluate, model.nll):
        refused(call, outside, targets, match=f"`tokens` {message}")
        refused(call, tokens, outside, match=f"`targets` {message}")
    refused(model.fit, tokens, targets, validation_data=(tokens, outside), verbose=0, match=f"`targets` {message}")
    refused(model.log_probs, outside, match=f"`tokens` {message}")
    refused(model.generate, outside, 1, match=f"`prompt` {message}")


@pytest.mark.parametrize("eager", [True, False] if BACKEND == "tensorflow" else [False])
def test_ids_outside_the_vocabulary_from_a_generator_are_counted(eager):
    """Such ids skip the update and end in an error; targets of weight 0 may be anything."""
    tokens, targets, _ = batch(4)
    weights = np.ones(tokens.shape, "float32")
    model = compiled(language_model(), keras.optimizers.SGD(1.0), run_eagerly=eager)
    before = weights_of(model)
    message = r"must hold ids from 0 to 19, .* Received: {} ids outside this range"

    def fit(tokens, targets, weights, callbacks=()):
        data = ((tokens, targets, weights) for _ in range(3))
        model.fit(data, steps_per_epoch=3, shuffle=False, verbose=0, callbacks=list(callbacks))

    high, low = (np.where(np.arange(LENGTH) == 2, id, tokens) for id in (VOCABULARY, -5))
    for one in ((high, targets, weights), (tokens, low, weights)):
        refused(fit, *one, match=message.format(12))
        refused(fit, *one, [TerminateOnNonFinite()], match=message.format(4))  # at the first batch
        refused(model.evaluate, (batch for batch in [one]), steps=1, verbose=0, match=message.format(4))
        for method in (model.train_on_batch, model.test_on_batch):
            refused(method, *one, match=message.format(4))
            method(tokens, targets, np.zeros_like(weights))  # is not refused for what came before, and changes nothing
    assert all(map(np.array_equal, weights_of(model), before))
    fit(tokens, low, np.where(low < 0, 0, weights))
    assert not all(map(np.array_equal, weights_of(model), before))


def test_one_weight_per_sequence_weighs_all_its_targets():
    tokens, targets, _ = batch(LENGTH)  # as many rows as columns, so that a wrong broadcast would fit
    model = compiled(language_model(), "sgd")
    rows = np.arange(LENGTH, dtype="float32")
    expected = np.average(model.nll(tokens, targets), weights=np.repeat(rows[:, None], LENGTH, axis=1))
    found = model.evaluate(tokens, targets, sample_weight=rows, verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_loss_scale_of_the_optimizer_changes_nothing():
    data = batch(4)
    plain, logs = trained(data, optimizer=lambda: keras.optimizers.SGD(0.5, global_clipnorm=1.0))
    scaling = partial(keras.optimizers.SGD, 0.5, global_clipnorm=1.0, loss_scale_factor=64.0)
    scaled, other = trained(data, optimizer=scaling)
    assert largest_difference(plain, language_model()) > 1e-3
    assert largest_difference(plain, scaled) < 1e-6
    assert logs == pytest.approx(other, rel=1e-5)
