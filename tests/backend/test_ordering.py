import numpy as np
from keras import ops

from keras_adaptive.backend.ordering import with_dependencies
from tests.support.backends import MODES, value_and_gradients


def test_value_and_gradient_are_untouched():
    x = np.arange(3, dtype="float32")
    for mode in MODES:
        value, (gradient,) = value_and_gradients(
            lambda x: ops.sum(ops.square(with_dependencies(x, ops.exp(x), 0.0))), [x], mode
        )
        np.testing.assert_allclose(value, 5.0)
        np.testing.assert_allclose(gradient, 2 * x)
