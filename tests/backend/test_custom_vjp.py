"""Custom gradients in graphs of TensorFlow, which must be freed, and differentiated from outside."""

import gc
import weakref

import numpy as np
import pytest

from keras_adaptive.backend.custom_vjp import custom_vjp
from tests.support.backends import BACKEND

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="graphs are TensorFlow's")


def tripled(x):
    """Computes 2x, with a gradient of 3."""
    return custom_vjp(lambda x: (2 * x, ()), lambda _, upstream: [3 * upstream])(x)


def test_a_graph_is_freed_with_its_function():
    import tensorflow as tf

    graphs = []

    @tf.function
    def gradient(x):
        graphs.append(weakref.ref(tf.compat.v1.get_default_graph()))
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tripled(x)
        return tape.gradient(value, x)

    np.testing.assert_array_equal(gradient(tf.ones(2)), [3, 3])
    (graph,) = graphs
    assert graph() is not None
    del gradient
    gc.collect()
    assert graph() is None


def test_a_graph_has_its_gradient_as_long_as_its_function():
    """The gradient of a function is computed long after it was traced."""
    import tensorflow as tf

    function = tf.function(lambda x: tripled(tripled(x)))
    assert function(tf.ones(())) == 4
    gc.collect()
    x = tf.ones(())
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    assert tape.gradient(value, x) == 9
