import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.gradients import value_and_gradients
from keras_adaptive.ops.global_norm import scaled
from tests.support.backends import numpy
from tests.support.closeness import all_equal


def test_gradients_can_be_scaled_in_place():
    """The gradients of two terms of a sum are one tensor to torch, which must not be scaled twice."""
    first, second, unused = (keras.Variable(np.ones((2, 3), "float32")) for _ in range(3))

    def function(factor):
        return factor * ops.sum(ops.square(ops.add(first.value, second.value))), ()

    with keras.StatelessScope(state_mapping=[]):
        (value, _), gradients = value_and_gradients(function, (ops.ones(()),), [first, second, unused], [])
        halves = scaled(gradients, ops.convert_to_tensor(0.5))
    assert float(value) == 24
    all_equal(numpy(halves), [np.full((2, 3), expected) for expected in (2.0, 2.0, 0.0)])
