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
