import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers.flat_dense import FlatDense
from tests.support.backends import numpy, weight_gradients
from tests.support.closeness import close

X = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_values_and_gradients_are_those_of_dense(dtype, use_bias):
    flat, dense = (
        layer(4, activation="relu", use_bias=use_bias, bias_initializer="ones", dtype=dtype)
        for layer in (FlatDense, keras.layers.Dense)
    )
    for layer in (flat, dense):
        layer.build(X.shape)
    flat.set_weights(dense.get_weights())

    def of(layer):
        square = lambda x: ops.sum(ops.square(ops.cast(layer(x), "float32")))  # noqa: E731
        value, gradients = weight_gradients(square, layer.trainable_variables, [X])
        return [numpy(ops.cast(layer(X), "float32")), numpy(value), *map(numpy, gradients)]

    rounding = 1e-6 if dtype == "float32" else 2**-7
    close(of(flat), of(dense), rounding, least=0.0)
    assert keras.backend.standardize_dtype(flat(X).dtype) == flat.compute_dtype
