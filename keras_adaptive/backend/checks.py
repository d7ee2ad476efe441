"""Checks of numbers that a graph of TensorFlow knows only when it runs."""


def check_equal(actual, expected, message):
    """Returns an integer after checking that it is equal to another.

    Args:
        actual: An integer, or a scalar tensor in a graph of TensorFlow, where the check runs with the graph.
        expected: An integer.
        message: The text of the error.

    Returns:
        `actual`. In a graph only what is computed from the returned tensor waits for the check.

    Raises:
        ValueError: If the numbers differ; `tf.errors.InvalidArgumentError` when the graph runs.
    """
    if isinstance(actual, int):
        if actual != expected:
            raise ValueError(message)
        return actual
    import tensorflow as tf

    with tf.control_dependencies([tf.debugging.assert_equal(actual, expected, message)]):
        return tf.identity(actual)
