"""Checks of numbers that a graph of TensorFlow knows only when it runs."""


def check_equal(actual, expected, message):
    """Raises an error with a message unless two integers are equal.

    Args:
        actual: An integer, or a scalar tensor in a graph of TensorFlow, where the check runs with the graph.
        expected: An integer.
        message: The text of the error.

    Raises:
        ValueError: If the numbers differ; `tf.errors.InvalidArgumentError` when the graph runs.
    """
    if isinstance(actual, int):
        if actual != expected:
            raise ValueError(message)
        return
    import tensorflow as tf

    tf.debugging.assert_equal(actual, expected, message)
