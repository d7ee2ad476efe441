import keras
import numpy as np
import pytest

from keras_adaptive.optimizers import L2Adam
from tests.support.refusals import refused
from tests.support.steps import apply


def test_the_penalty_passes_through_the_moments_after_clipping():
    """The penalty acts as the weight decay of `torch.optim.Adam`, here in float64."""
    rng = np.random.default_rng(1)
    weight, gradients, l2, bound = rng.normal(size=3), rng.normal(size=(5, 3)), 0.3, 0.5
    variable = keras.Variable(weight)
    optimizer = L2Adam(0.1, l2=l2, global_clipnorm=bound)
    first = second = np.zeros(3)
    for t, gradient in enumerate(gradients, 1):
        (found,) = apply(optimizer, [variable], [gradient])
        gradient = gradient * min(1, bound / np.linalg.norm(gradient)) + l2 * weight
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        weight = weight - 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * first / (np.sqrt(second) + 1e-8)
        np.testing.assert_allclose(found, weight, rtol=1e-4, atol=1e-5)  # Keras corrects the bias in float32


def test_without_a_penalty_it_is_adam():
    gradients = np.random.default_rng(1).normal(size=(4, 3))
    ends = []
    for optimizer in (L2Adam(0.1), keras.optimizers.Adam(0.1, epsilon=1e-8)):
        variable = keras.Variable(np.ones(3))
        ends.append([apply(optimizer, [variable], [gradient]) for gradient in gradients][-1][0])
    np.testing.assert_allclose(*ends, rtol=1e-6)


@pytest.mark.parametrize("given, epsilon", [({}, 1e-8), ({"epsilon": 1e-7}, 1e-7)])  # the default is that of torch
@pytest.mark.once
def test_the_config_holds_the_penalty_and_epsilon(given, epsilon):
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(L2Adam(0.1, l2=0.5, **given)))
    assert type(copy) is L2Adam and copy.l2 == 0.5 and copy.epsilon == epsilon

    assert float(L2Adam().learning_rate) == pytest.approx(0.001)
    refused(L2Adam, l2=-1, match="`l2` must not be negative. Received: l2=-1")
