import keras
import numpy as np
from keras import ops


def on_host(function, shape, *tensors):
    """Calls a function of NumPy arrays with tensors, also from a compiled function.

    There is no gradient.

    Args:
        function: Function of NumPy arrays that returns one.
        shape: Shape of its result. TensorFlow allows `None` for an axis.
        *tensors: Its arguments.

    Returns:
        The result, a float32 tensor.
    """
    backend = keras.config.backend()
    wrapped = lambda *arrays: np.asarray(function(*map(np.asarray, arrays)), "float32")  # noqa: E731
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.ensure_shape(tf.numpy_function(wrapped, tensors, tf.float32), shape)
    if backend == "jax":
        import jax

        return jax.pure_callback(wrapped, jax.ShapeDtypeStruct(shape, "float32"), *tensors)
    return ops.convert_to_tensor(wrapped(*map(ops.convert_to_numpy, tensors)))
