import numpy as np
import pytest

from keras_adaptive.layers import SinusoidalPositions
from tests.support import oracle
from tests.support.backends import numpy


@pytest.mark.parametrize("first", [0, 2])
def test_equals_the_oracle(first):
    x = np.random.default_rng(0).normal(size=(2, 50, 8)).astype("float32")
    actual = numpy(SinusoidalPositions(first_position=first)(x))
    np.testing.assert_allclose(actual, x + oracle.positions(50, 8, first), atol=5e-6)


def test_start_continues():
    x = np.zeros((1, 6, 8), "float32")
    layer = SinusoidalPositions()
    np.testing.assert_allclose(numpy(layer(x[:, :2], start=4)), numpy(layer(x))[:, 4:], atol=1e-6)


def test_far_positions_keep_their_precision():
    x = np.zeros((1, 1, 8), "float32")
    actual = numpy(SinusoidalPositions(first_position=0)(x, start=3000))[0, 0]
    np.testing.assert_allclose(actual, oracle.positions(1, 8, first=3000)[0], atol=2e-4)
