import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.backend import compiled as module
from keras_adaptive.backend.compiled import compiled
from tests.support.backends import BACKEND, numpy


def test_reads_the_variables_at_every_call():
    variable = keras.Variable(np.ones(2, "float32"))
    function = compiled(lambda x, rest: (variable.value * x, [rest]), [variable])
    x = keras.ops.convert_to_tensor([1.0, 2.0])
    np.testing.assert_allclose(numpy(function(x, x)[0]), [1, 2])
    variable.assign([3.0, 4.0])
    product, (rest,) = numpy(function(x, x))
    np.testing.assert_allclose(product, [3, 8])
    np.testing.assert_allclose(rest, [1, 2])


def test_a_quick_start_gives_the_same_values():
    variable = keras.Variable(np.ones(2, "float32"))
    function = compiled(lambda x: ops.exp(variable.value * x), [variable], quick_start=True)
    for x in (np.array([1.0, 2.0], "float32"), np.ones((3, 2), "float32")):
        for _ in range(3):
            np.testing.assert_allclose(numpy(function(ops.convert_to_tensor(x))), np.exp(x), rtol=1e-6)


@pytest.mark.skipif(BACKEND != "jax", reason="JAX alone compiles a quick start")
def test_every_shape_starts_quickly_once(monkeypatch):
    """An option that XLA does not know tells which calls use the options of the quick start."""
    monkeypatch.setattr(module, "QUICK", {"no_such_option": True})
    function = compiled(lambda x: 2 * x, [], quick_start=True)
    for x in (np.ones(2, "float32"), np.ones(3, "float32")):
        with pytest.raises(Exception, match="no_such_option"):
            function(x)
        np.testing.assert_array_equal(function(x), 2 * x)
