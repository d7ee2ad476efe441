"""Values and trees of values that must be near one another."""

import keras
import numpy as np


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
