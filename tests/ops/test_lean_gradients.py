"""Functions whose own gradients keep fewer arrays under JAX, against Keras' functions."""

import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops.normalization import layer_normalization
from keras_adaptive.ops.relu import relu
from tests.support.backends import MODES, value_and_gradients
from tests.support.closeness import all_close

RANDOM = np.random.default_rng(0)
X, GAMMA, BETA, WEIGHTS = (RANDOM.normal(size=shape).astype("float32") for shape in ((2, 3, 5), 5, 5, (2, 3, 5)))
CASES = {
    "relu": (relu, ops.relu, [X]),
    "layer_normalization": (
        lambda *given: layer_normalization(*given, 1e-3),
        lambda x, gamma, beta: ops.layer_normalization(x, gamma, beta, -1, 1e-3),
        [X, GAMMA, BETA],
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_keras(name, mode):
    *functions, given = CASES[name]
    found, expected = (
        value_and_gradients(lambda *given, of=function: ops.sum(ops.multiply(of(*given), WEIGHTS)), given, mode)
        for function in functions
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    all_close(found[1], expected[1], rtol=1e-4, atol=1e-5)
