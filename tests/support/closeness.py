"""Values and trees of values that must be near one another."""

import keras
import numpy as np

from tests.support import oracle
from tests.support.backends import MODES, value_and_gradients


def all_close(found, expected, **tolerances):
    """Compares the arrays of two trees, such as `(value, gradients)`, by `np.testing.assert_allclose`."""
    for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, **tolerances)


def all_equal(found, expected):
    """Compares the arrays of two trees number by number."""
    for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def close(found, expected, tolerance=5e-6, least=1.0):
    """Compares the arrays of two trees, to `tolerance` times the largest number of each, or times `least` if more."""
    for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
        scale = max(least, np.max(np.abs(other), initial=0.0))
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


def close_to_formula(function, formula, arrays, mode=MODES[0], least=0.0):
    """Compares the value and the gradients of `function(*tensors)` with those of a formula of `oracle`, in float64."""
    value, gradients = value_and_gradients(function, arrays, mode)
    np.testing.assert_allclose(value, formula(*arrays), rtol=1e-5)
    close(gradients, oracle.gradients(formula, arrays), 2e-6, least)


def normal(*shape, seed=0):
    """Returns random numbers in float32."""
    return np.random.default_rng((*shape, seed)).normal(size=shape).astype("float32")


def weighted(function, library, *arguments):
    """A number in which every value that `function` returns has another weight; `library` is `keras.ops` or NumPy."""
    values = keras.tree.flatten(function(*arguments))
    return sum(library.sum(library.multiply(value, normal(*map(int, value.shape)))) for value in values)
