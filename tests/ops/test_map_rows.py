import functools

import numpy as np
import pytest
from keras import ops

from keras_adaptive.backend.custom_vjp import with_gradient_of
from keras_adaptive.ops.map_rows import map_rows
from keras_adaptive.ops.word_bytes import Convolutions, Highways, beginnings
from tests.support.backends import BACKEND, MODES, runner, value_and_gradients

X = np.random.default_rng(0).normal(size=(9, 3)).astype("float32")
SHIFT = np.arange(9, dtype="int32")
KERNEL = np.random.default_rng(1).normal(size=(3, 2)).astype("float32")
FIRST = np.array([True, False, True, True, False, False, True, True, False])
SECOND = np.array([False, True, False, False, False, True, False, False, False])


def products(x, shift, kernel):
    return ops.matmul(ops.square(x), kernel) + ops.cast(shift, "float32")[:, None]


def negatives(x, shift, kernel):
    return -ops.matmul(x, kernel)


class Saving:
    """A function that saves its values, and needs nothing else for its gradients."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        return self.function(*arguments)

    def save(self, *arguments):
        values = self.function(*arguments)
        return values, [values]

    def from_saved(self, saved, *arguments):
        return with_gradient_of(self.function(*arguments), saved[0])


def mapped(x, kernel, first=FIRST, second=SECOND, chunk_rows=2, saved=()):
    functions = [Saving(function) if saved else function for function in (products, negatives)]
    cases = [(functions[0], first, chunk_rows), (functions[1], second, chunk_rows)]
    cases = [(function, ops.convert_to_tensor(active), rows) for function, active, rows in cases]
    return map_rows(cases, [x, ops.convert_to_tensor(SHIFT)], [kernel], 2, saved=saved)


def truth(x, kernel):
    values = np.where(FIRST[:, None], x**2 @ kernel + SHIFT[:, None], 0)
    return np.where(SECOND[:, None], -x @ kernel, values)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chunk_rows, saved", [(1, ()), (2, ()), (2, [(2, "float32")]), (9, ()), (16, ())])
def test_values_and_gradients(chunk_rows, saved, mode):
    slopes = np.random.default_rng(2).normal(size=(9, 2)).astype("float32")
    function = functools.partial(mapped, chunk_rows=chunk_rows, saved=saved)
    np.testing.assert_allclose(runner(function, mode)(X, KERNEL), truth(X, KERNEL), atol=1e-5)
    total = lambda x, kernel: ops.sum(function(x, kernel) * ops.convert_to_tensor(slopes))  # noqa: E731
    _, (of_x, of_kernel) = value_and_gradients(total, [X, KERNEL], mode)
    first, second = np.where(FIRST[:, None], slopes, 0), np.where(SECOND[:, None], slopes, 0)
    np.testing.assert_allclose(of_x, 2 * X * (first @ KERNEL.T) - second @ KERNEL.T, atol=1e-5)
    np.testing.assert_allclose(of_kernel, (X**2).T @ first - X.T @ second, atol=1e-4)


def test_no_rows_at_all():
    none = np.zeros(9, "bool")
    output = runner(lambda x, kernel: mapped(x, kernel, none))(X, KERNEL)
    np.testing.assert_allclose(output, np.where(SECOND[:, None], -X @ KERNEL, 0), atol=1e-5)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a graph of TensorFlow can be made before XLA compiles it")
def test_xla_computes_no_wrong_values_from_a_graph_made_without_it():
    import tensorflow as tf

    inner = tf.function(mapped, autograph=False)
    arguments = [tf.constant(array) for array in (X, KERNEL, FIRST, SECOND)]
    inner(*arguments)  # its graph has dynamic shapes, and is used again
    outer = tf.function(lambda *arguments: inner(*arguments) + 0.0, jit_compile=True, autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="UniqueWithCounts"):
        outer(*arguments)


KERNELS = [np.ones((width, 4, 5), "float32") for width in (1, 2, 3)]
OF_CONVOLUTIONS = [np.ones((257, 4), "float32"), *KERNELS, *beginnings(KERNELS), *np.ones((3, 5), "float32")]
SHAPES = (8, 16), (8, 16), (16,), (16,), (8, 4), (4,)
OF_HIGHWAYS = [np.ones(shape, "float32") for shape in SHAPES]


@pytest.mark.skipif(BACKEND != "jax", reason="the products of a compiled program are counted")
@pytest.mark.parametrize(
    "function, rows, weights, width, saved",
    [
        (Convolutions(6, 6), np.ones((9, 6), "int32"), OF_CONVOLUTIONS, 15, [(15, "int32")]),
        (Highways(), np.ones((9, 8), "float32"), OF_HIGHWAYS, 4, [(16, "float32")] * 2),
    ],
)
def test_what_is_saved_spares_products(function, rows, weights, width, saved):
    """Each of the three products is computed once, and once more for each of its two gradients."""
    import jax

    def products(saved):
        def total(rows, weights):
            weights = list(map(ops.convert_to_tensor, weights))
            return ops.sum(map_rows([(function, ops.convert_to_tensor(FIRST), 2)], [rows], weights, width, saved=saved))

        places = (0, 1) if rows.dtype == "float32" else 1
        program = jax.jit(jax.value_and_grad(total, argnums=places)).lower(rows, weights).compile()
        return program.as_text().count(" dot(")

    assert products(saved) == 9 < products(())
