"""Keras' Adam and its relatives by the kernel of torch: the steps of Keras, on every backend."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.backend.fused_adam import FusedAdam
from keras_adaptive.backend.optimizer_step import apply_gradients
from tests.support.backends import BACKEND, numpy
from tests.support.closeness import all_close
from tests.support.steps import apply

OPTIMIZERS = {
    "Adam": lambda: keras.optimizers.Adam(0.1),
    "other moments": lambda: keras.optimizers.Adam(0.1, beta_1=0.5, beta_2=0.6, epsilon=0.1),
    "AMSGrad": lambda: keras.optimizers.Adam(0.1, beta_2=0.6, amsgrad=True),
    "AdamW": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.5),
}


class Twice(keras.optimizers.Adam):
    """An Adam of the user, with steps of its own."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, 2 * learning_rate)


def trained(take, optimizer):
    """Returns the variables after five updates by `take(optimizer, gradients, variables)`."""
    rng = np.random.default_rng(1)
    variables = [keras.Variable(rng.normal(size=shape)) for shape in ((3, 2), (5,))]
    optimizer.build(variables)
    for _ in range(5):
        take(optimizer, [rng.normal(size=variable.shape).astype("float32") for variable in variables], variables)
    return [variable.numpy() for variable in variables], optimizer


def by_keras(optimizer, gradients, variables):
    apply(optimizer, variables, gradients)


def by_the_kernel(optimizer, gradients, variables):
    gradients = list(map(ops.convert_to_tensor, gradients))
    apply_gradients(optimizer, gradients, variables, ops.convert_to_tensor(True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_and_slots_are_the_ones_of_keras(name):
    expected, optimizer = trained(by_keras, OPTIMIZERS[name]())
    reached, fused = trained(by_the_kernel, OPTIMIZERS[name]())
    all_close(reached, expected, rtol=2e-5, atol=1e-6)
    all_close(
        [numpy(one) for one in fused.variables], [numpy(one) for one in optimizer.variables], rtol=1e-5, atol=1e-7
    )


def test_an_optimizer_of_the_user_keeps_its_steps():
    expected, _ = trained(by_keras, Twice(0.1))
    reached, _ = trained(by_the_kernel, Twice(0.1))
    np.testing.assert_allclose(reached[0], expected[0], rtol=1e-6)


@pytest.mark.skipif(BACKEND != "torch", reason="the fused kernel is torch's")
def test_one_kernel_updates_all_variables(monkeypatch):
    import torch

    calls, kernel = [], torch._fused_adam_
    monkeypatch.setattr(torch, "_fused_adam_", lambda *args, **kwargs: calls.append(kernel(*args, **kwargs)))
    trained(by_the_kernel, keras.optimizers.Adam(0.1))
    assert len(calls) == 5


@pytest.mark.skipif(BACKEND != "torch", reason="the layout in memory is torch's")
def test_a_layout_that_the_kernel_does_not_take():
    import torch

    def run(transposed):
        variable = keras.Variable(np.arange(6.0).reshape(2, 3))
        if transposed:
            variable.value.data = variable.value.data.t().contiguous().t()
        optimizer = FusedAdam(0.1)
        for _ in range(2):
            optimizer.apply([torch.arange(6.0).reshape(2, 3)], [variable])
        return variable.numpy()

    np.testing.assert_allclose(run(True), run(False), rtol=1e-6)
