"""Order of execution, where the backend does not keep one."""

import keras


def with_dependencies(tensor, *others):
    """Returns `tensor`, to be used only after `others` are computed; its value and gradient do not change.

    A graph of TensorFlow runs independent operations at the same time, and then needs the memory of all. The other
    backends need no such order.
    """
    if keras.config.backend() != "tensorflow":
        return tensor
    import tensorflow as tf

    with tf.control_dependencies([tf.convert_to_tensor(other) for other in others]):
        return tf.identity(tensor)
