"""The order of work where the backend does not keep one."""

import keras


def with_dependencies(tensor, *others):
    """`tensor`, to be used only when `others` are computed; its value and gradient are untouched.

    A graph of TensorFlow runs what does not depend on each other at the same time, and then needs the memory of both.
    The other backends need no telling.
    """
    if keras.config.backend() != "tensorflow":
        return tensor
    import tensorflow as tf

    with tf.control_dependencies([tf.convert_to_tensor(other) for other in others]):
        return tf.identity(tensor)
