import keras
import numpy as np
from keras import ops

from keras_adaptive.optimizers import LazyAdam
from tests.support.backends import numpy
from tests.support.closeness import all_close


def test_rows_that_were_not_read_keep_weights_and_moments():
    """A row counts as read if one of its numbers has a gradient; all of its numbers then take the step of Adam."""
    rng, optimizer, rate = np.random.default_rng(1), LazyAdam(beta_1=0.8, beta_2=0.9, epsilon=1e-6), 0.1
    optimizer.build([keras.Variable(np.zeros((3, 2), "float32"))])
    optimizer.iterations.assign(4)
    gradient, first, second = rng.normal(size=(3, 3, 2)).astype("float32")
    gradient[0], gradient[1, 0], second = 0, 0, np.square(second)
    tensor, *slots = (ops.convert_to_tensor(array) for array in (gradient, first, second))
    change, moments = optimizer.row_changes(tensor, slots, rate)
    new_first, new_second = 0.8 * first + 0.2 * gradient, 0.9 * second + 0.1 * gradient**2
    expected = -rate * np.sqrt(1 - 0.9**5) / (1 - 0.8**5) * new_first / (np.sqrt(new_second) + 1e-6)
    exact = [one * [[0], [1], [1]] for one in (expected, new_first - first, new_second - second)]
    all_close(numpy([change, *moments]), exact, rtol=1e-5, atol=1e-7)
