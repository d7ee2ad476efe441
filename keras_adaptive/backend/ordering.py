"""Order of execution, for backends that do not keep one (TensorFlow 2.21; JAX 0.10)."""

import keras
from keras import ops


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


def computed_after(values, read):
    """Returns `values`, which XLA under JAX computes only after `read`, the rows of a slot that they are added to.

    Without this order XLA copies the whole slot, twice in every update.
    """
    return ops.where(read == read, values, read) if keras.config.backend() == "jax" else values  # NaN stays NaN


def computed_in_loop(index, step):
    """Returns `index`, from which XLA under JAX computes nothing before the loop whose step number is `step`.

    The index of a single row is the same in all steps. XLA would process the row before the loop even if the loop has
    no steps: a generated word would cost the logits of all tails.
    """
    if keras.config.backend() != "jax":
        return index
    import jax

    return jax.lax.optimization_barrier((index, step))[0]
