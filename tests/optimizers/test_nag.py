import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_adaptive.optimizers import NAG
from tests.support.backends import BACKEND
from tests.support.closeness import all_close
from tests.support.refusals import refused
from tests.support.steps import apply
from tests.support.tiny import saved_and_loaded

RUNS = {  # run -> arguments beside learning rate and momentum
    "clip0.1_min1e-4": {"global_clipnorm": 0.1},
    "clip0.1_min1e-5": {"global_clipnorm": 0.1},
    "clip0.1_wd0.01": {"global_clipnorm": 0.1, "weight_decay": 0.01},
    "noclip_lr0.01": {},
    "clip0.1_nowarmup": {"global_clipnorm": 0.1},
}


def train(optimizer, gradients, rates):
    """Returns the value of a parameter that starts at 0."""
    variable = keras.Variable(np.zeros_like(gradients[0]))
    for gradient, rate in zip(gradients, rates, strict=True):
        apply(optimizer, [variable], [gradient], rate)
    return variable.numpy()


def published_form(gradients, rates, momentum):
    """p <- p + mu^2 r b - (1 + mu) lr g; b <- mu r b - lr g; in float64, with r = lr / the rate before."""
    p = b = np.zeros_like(gradients[0], "float64")
    for gradient, rate, before in zip(gradients, rates, [rates[0], *rates[:-1]], strict=True):
        ratio = rate / before
        p = p + momentum**2 * ratio * b - (1 + momentum) * rate * gradient
        b = momentum * ratio * b - rate * gradient
    return p


@pytest.mark.once
def test_every_published_run_is_tested(golden):
    assert sorted(golden("nag").config["runs"]) == sorted(RUNS)


@pytest.mark.parametrize("run", RUNS)
def test_steps_are_the_published_ones(golden, run):
    arrays = golden("nag").arrays
    variables = [keras.Variable(arrays["init/a"]), keras.Variable(arrays["init/b"])]
    optimizer = NAG(1.0, momentum=0.99, **RUNS[run])
    for step, rate in enumerate(arrays[f"{run}/lr"]):
        gradients = [arrays[f"{run}/grad_{name}"][step] for name in "ab"]
        reached = apply(optimizer, variables, gradients, rate)
        all_close(reached, [arrays[f"{run}/{name}"][step] for name in "ab"], rtol=1e-4, atol=1e-5)
    buffers = [-rate * buffer.numpy() for buffer in optimizer.momentums]
    all_close(buffers, [arrays[f"{run}/buf_{name}"][-1] for name in "ab"], rtol=1e-4, atol=1e-7)


@given(seed=st.integers(0, 10**6), momentum=st.sampled_from([0.5, 0.9, 0.99]), updates=st.integers(1, 12))
def test_any_rates_give_the_published_form(seed, momentum, updates):
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(updates, 3)).astype("float32")
    rates = 10 ** rng.uniform(-4, 0, updates)
    reached = train(NAG(1.0, momentum=momentum), gradients, rates)
    np.testing.assert_allclose(reached, published_form(gradients, rates, momentum), rtol=1e-4, atol=1e-5)


def test_keras_sgd_is_the_same_only_while_the_rate_is_constant():
    gradients = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    constant, warming = np.full(20, 0.1), np.linspace(0.01, 0.1, 20)
    nag, sgd = (lambda: NAG(0.1, momentum=0.9)), (lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True))
    np.testing.assert_allclose(train(nag(), gradients, constant), train(sgd(), gradients, constant), rtol=1e-4)
    assert np.abs(train(nag(), gradients, warming) - train(sgd(), gradients, warming)).max() > 0.01


def test_weight_decay_multiplies_before_the_step():
    variable = keras.Variable([2.0])
    (reached,) = apply(NAG(0.1, momentum=0.5, weight_decay=0.5), [variable], [[1.0]])
    np.testing.assert_allclose(reached, [2.0 * (1 - 0.1 * 0.5) - 0.1 * (1 + 0.5)], rtol=1e-6)


def test_zero_momentum_is_plain_gradient_descent():
    gradients = np.ones((3, 2), "float32")
    np.testing.assert_allclose(train(NAG(1.0, momentum=0), gradients, [1.0, 0.5, 0.25]), [-1.75, -1.75])


def test_accumulated_gradients_make_one_step():
    gradients = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    accumulated = train(NAG(0.1, momentum=0.9, gradient_accumulation_steps=2), gradients, np.full(6, 0.1))
    averaged = train(NAG(0.1, momentum=0.9), gradients.reshape(3, 2, 3).mean(axis=1), np.full(3, 0.1))
    np.testing.assert_allclose(accumulated, averaged, rtol=1e-5, atol=1e-7)


def test_float16_training_scales_the_loss_and_skips_overflows():
    variable = keras.Variable([1.0, 2.0])
    optimizer = keras.optimizers.LossScaleOptimizer(NAG(1.0, momentum=0.9), initial_scale=8.0)
    for gradient in ([8.0, 16.0], [np.inf, 0.0], [4.0, 4.0]):  # the scale is 8, then halved to 4
        reached = apply(optimizer, [variable], [gradient], 0.1)
    expected = train(NAG(1.0, momentum=0.9), np.float32([[1.0, 2.0], [1.0, 1.0]]), [0.1, 0.1])
    np.testing.assert_allclose(reached[0], [1.0, 2.0] + expected, rtol=1e-5)
    assert int(ops.convert_to_numpy(optimizer.iterations)) == 2


def test_variables_keep_their_dtype():
    variable = keras.Variable([1.0, 2.0], dtype="bfloat16")
    optimizer = NAG(0.5, momentum=0.5)
    optimizer.apply([ops.ones(2)], [variable])
    assert {v.dtype for v in (variable, *optimizer.momentums)} == {"bfloat16"}
    np.testing.assert_allclose(ops.convert_to_numpy(ops.cast(variable, "float32")), [0.25, 1.25])


@pytest.mark.parametrize("size", [0.01, 1.0, np.inf])
def test_clipping_is_that_of_keras(size):
    """Below the bound, above it, and a gradient that is not finite, which makes everything NaN."""
    gradients = [np.float32([3.0, 0.0]) * 0.1, np.float32([[size]])]

    def run(optimizer):
        return apply(optimizer, [keras.Variable(np.ones(2)), keras.Variable(np.ones((1, 1)))], gradients)

    arguments = {"momentum": 0.9, "global_clipnorm": 0.5}
    all_close(run(NAG(0.1, **arguments)), run(keras.optimizers.SGD(0.1, nesterov=True, **arguments)), rtol=1e-6)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow has sparse embedding gradients")
@pytest.mark.parametrize("clip", [None, 0.1])
def test_sparse_gradients_with_repeated_rows_equal_dense_ones(clip):
    import tensorflow as tf

    def run(densify):
        variable = keras.Variable(np.ones((4, 2)))
        optimizer = NAG(0.1, momentum=0.9, global_clipnorm=clip)
        for rows in ([0, 2, 0], [2, 2, 1]):
            gradient = tf.IndexedSlices(tf.ones((3, 2)), tf.constant(rows), tf.constant([4, 2]))
            optimizer.apply([tf.convert_to_tensor(gradient) if densify else gradient], [variable])
        return variable.numpy()

    np.testing.assert_allclose(run(densify=False), run(densify=True), rtol=1e-6)


@pytest.mark.skipif(BACKEND != "torch", reason="the fused kernel is torch's")
class TestTorch:
    def test_all_variables_are_updated_by_one_fused_kernel(self, monkeypatch):
        import torch

        calls, kernel = [], torch._fused_sgd_
        monkeypatch.setattr(torch, "_fused_sgd_", lambda *args, **kwargs: calls.append(kernel(*args, **kwargs)))
        variables = [keras.Variable(np.ones(3)), keras.Variable(np.ones((2, 2)))]
        apply(NAG(0.1), variables, [np.ones(3), np.ones((2, 2))])
        assert len(calls) == 1

    @pytest.mark.parametrize("transposed", ["gradient", "variable", "both"])
    def test_layout_in_memory_does_not_matter(self, transposed):
        import torch

        def run(layout):
            variable = keras.Variable(np.arange(6.0).reshape(2, 3))
            gradient = torch.arange(6.0, device=variable.value.device).reshape(2, 3)
            if layout in ("variable", "both"):
                variable.value.data = variable.value.data.t().contiguous().t()
            if layout in ("gradient", "both"):
                gradient = gradient.t().contiguous().t()
            optimizer = NAG(0.1, momentum=0.9)
            for _ in range(2):
                optimizer.apply([gradient], [variable])
            return variable.numpy()

        np.testing.assert_allclose(run(transposed), run(None), rtol=1e-6)

    def test_gradients_are_left_alone(self):
        import torch

        variable = keras.Variable(np.ones(3))
        gradient = torch.ones(3, device=variable.value.device)
        NAG(0.1).apply([gradient], [variable])
        assert gradient.tolist() == [1.0, 1.0, 1.0]


def test_a_saved_model_goes_on_as_if_never_saved(tmp_path):
    inputs, targets = np.eye(4, dtype="float32"), np.arange(4.0, dtype="float32")[:, None]
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(NAG(0.05, momentum=0.8, global_clipnorm=0.5, weight_decay=0.01), loss="mse")
    model.fit(inputs, targets, epochs=3, shuffle=False, verbose=0)
    loaded = saved_and_loaded(model, tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, NAG)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    for each in (model, loaded):
        each.fit(inputs, targets, epochs=3, shuffle=False, verbose=0)
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])


@pytest.mark.parametrize("momentum", [-0.1, 1.0, 1.5])
@pytest.mark.once
def test_bad_momentum_is_named(momentum):
    refused(NAG, momentum=momentum, match=f"momentum={momentum}")
