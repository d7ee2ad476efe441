import functools

import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops.map_rows import map_rows
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


def mapped(x, kernel, first=FIRST, second=SECOND, chunk_rows=2):
    cases = [(products, first, chunk_rows), (negatives, second, chunk_rows)]
    cases = [(function, ops.convert_to_tensor(active), rows) for function, active, rows in cases]
    return map_rows(cases, [x, ops.convert_to_tensor(SHIFT)], [kernel], 2)


def truth(x, kernel):
    values = np.where(FIRST[:, None], x**2 @ kernel + SHIFT[:, None], 0)
    return np.where(SECOND[:, None], -x @ kernel, values)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chunk_rows", [1, 2, 9, 16])
def test_values_and_gradients(chunk_rows, mode):
    slopes = np.random.default_rng(2).normal(size=(9, 2)).astype("float32")
    function = functools.partial(mapped, chunk_rows=chunk_rows)
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
