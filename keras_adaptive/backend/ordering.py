"""Order of execution, for backends that do not keep one."""

import keras


def with_dependencies(tensor, *others):
    """Returns `tensor` with a dependency: it is available only after `others` are computed.

    Its value and gradient do not change. A graph of TensorFlow runs independent operations at the same time, which
    needs the memory of all of them. The other backends need no such order.
    """
    if keras.config.backend() != "tensorflow":
        return tensor
    import tensorflow as tf

    with tf.control_dependencies([tf.convert_to_tensor(other) for other in others]):
        return tf.identity(tensor)


def computed_once(tensor):
    """Returns `tensor`, of which all users see the same values.

    XLA under JAX may compute a value again for each user, with other rounding errors: it may then exceed itself.
    """
    if keras.config.backend() != "jax":
        return tensor
    import jax

    return jax.lax.optimization_barrier(tensor)
