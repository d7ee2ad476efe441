import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops.split_rows import split_rows
from tests.support.backends import MODES, value_and_gradients

BOUNDARIES = (0, 3, 4, 8, 9, 10)


@pytest.fixture
def array():
    return np.random.default_rng(0).normal(size=(10, 2)).astype("float32")


def total(tensor):
    parts = split_rows(tensor, BOUNDARIES)
    assert [part.shape[0] for part in parts] == [3, 1, 4, 1, 1]
    return sum(number * ops.sum(ops.square(part)) for number, part in enumerate(parts, 1))


@pytest.mark.parametrize("mode", MODES)
def test_slices_and_their_gradient(array, mode):
    factors = np.repeat([1, 2, 3, 4, 5], np.diff(BOUNDARIES))[:, None]
    value, (gradient,) = value_and_gradients(total, [array], mode)
    np.testing.assert_allclose(value, np.sum(factors * array**2), rtol=1e-6)
    np.testing.assert_allclose(gradient, 2 * factors * array, rtol=1e-6)
