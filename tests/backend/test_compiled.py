import keras
import numpy as np

from keras_adaptive.backend.compiled import compiled
from tests.support.backends import numpy


def test_reads_the_variables_at_every_call():
    variable = keras.Variable(np.ones(2, "float32"))
    function = compiled(lambda x, rest: (variable.value * x, [rest]), [variable])
    x = keras.ops.convert_to_tensor([1.0, 2.0])
    np.testing.assert_allclose(numpy(function(x, x)[0]), [1, 2])
    variable.assign([3.0, 4.0])
    product, (rest,) = numpy(function(x, x))
    np.testing.assert_allclose(product, [3, 8])
    np.testing.assert_allclose(rest, [1, 2])
