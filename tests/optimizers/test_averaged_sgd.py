import keras
import numpy as np
import pytest

from keras_adaptive.optimizers import AveragedSGD
from tests.support.refusals import refused
from tests.support.steps import apply


@pytest.mark.parametrize("begin", [0, 1, 3])
def test_the_averages_are_the_mean_of_the_weights_since_they_began(begin):
    rng = np.random.default_rng(1)
    weight, gradients, rates = rng.normal(size=3), rng.normal(size=(7, 3)), rng.uniform(0.1, 1, 7)
    variable, optimizer, weights = keras.Variable(weight), AveragedSGD(1.0, l2=0.2, global_clipnorm=0.5), []
    optimizer.build([variable])
    for t, (gradient, rate) in enumerate(zip(gradients, rates)):
        if t == begin:
            optimizer.begin_averaging()
        (found,) = apply(optimizer, [variable], [gradient], rate)
        weight = weight - rate * (gradient * min(1, 0.5 / np.linalg.norm(gradient)) + 0.2 * weight)
        np.testing.assert_allclose(found, weight, rtol=1e-5)
        weights.append(weight)
        expected = np.mean(weights[begin:], axis=0) if t >= begin else weight
        np.testing.assert_allclose(optimizer.averages[0].numpy(), expected, rtol=1e-5)


@pytest.mark.once
def test_the_config_is_complete():
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(AveragedSGD(0.1, l2=0.5, patience=1)))
    assert type(copy) is AveragedSGD and (copy.l2, copy.patience) == (0.5, 1)
    config = AveragedSGD().get_config()
    assert [float(config[name]) for name in ("learning_rate", "l2", "patience")] == [pytest.approx(0.01), 0.0, 5]
    assert AveragedSGD(l2=0.0).l2 == 0.0


@pytest.mark.parametrize("arguments", [{"l2": -1}, {"patience": 0}])
@pytest.mark.once
def test_bad_arguments_are_refused(arguments):
    message = "`l2` must not be negative and `patience` must be at least 1. Received: "
    refused(AveragedSGD, **arguments, match=message)
