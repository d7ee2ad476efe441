import keras
from keras import ops

from keras_adaptive.backend.custom_vjp import custom_vjp


def relu(x):
    """Computes max(x, 0). Under JAX its gradient depends on the result alone, so that training does not keep `x`.

    `ops.normalization` has the memory that the two save together.
    """
    if keras.config.backend() != "jax":
        return ops.relu(x)
    return custom_vjp(_forward, _backward)(x)


def _forward(x):
    result = ops.relu(x)
    return result, (result,)


def _backward(residuals, upstream):
    return [ops.where(residuals[0] > 0, upstream, ops.zeros_like(upstream))]
