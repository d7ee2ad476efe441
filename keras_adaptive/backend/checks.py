"""Checks of shapes and numbers. A graph of TensorFlow knows some of them only when it runs."""

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.custom_vjp import is_float

LARGEST = 1.8e19  # the square root of the largest float32


def check_same_shape(array, expected, name, of):
    """Raises a ValueError unless an array has the `expected` shape of the object `of`. Unknown sizes match any size."""
    shape, expected = tuple(array.shape if hasattr(array, "shape") else np.shape(array)), tuple(expected)
    pairs = zip(shape, expected)
    if len(shape) != len(expected) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ValueError(f"`{name}` must have the shape {expected} of {of}. Received: shape={shape}.")


def check_shapes(**arrays):
    """Checks that the shapes of the arguments of a function fit together. Sizes that a graph does not know match any.

    Args:
        **arrays: For each argument the pair of an array, or `None`, and the names of its sizes: `x=(x, "rows dim")`. A
            name stands for one size everywhere, and "samples+rows" for a sum of two sizes.
    """
    sizes = {}
    for name, (array, axes) in arrays.items():
        if array is None:
            continue
        shape, axes = tuple(array.shape if hasattr(array, "shape") else np.shape(array)), axes.split()
        expected = [_sum_of([sizes.get(part) for part in axis.split("+")]) for axis in axes]
        pairs = zip(shape, expected)
        if len(shape) != len(axes) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
            known = ", ".join(f"{axis}={size}" for axis, size in sizes.items() if size is not None)
            raise ValueError(
                f"`{name}` must have the shape ({', '.join(axes)}){f' with {known}' if known else ''}. "
                f"Received: shape={shape}."
            )
        sizes.update({axis: size for axis, size in zip(axes, shape) if "+" not in axis and size is not None})


def _sum_of(sizes):
    return None if None in sizes else sum(sizes)


def check_rows(state, rows):
    """Raises a ValueError unless all tensors of a state have this number of rows. None matches any number."""
    for part in keras.tree.flatten(state):
        if rows is not None and part.shape[0] not in (rows, None):
            raise ValueError(
                f"`state` must have one row per row of the batch. Received: a state of {part.shape[0]} rows, a "
                f"batch of {rows}. Pass `initial_state({rows})`, or the state after a batch of {rows} rows."
            )


def check_number_of_layers(number, name, most=1000):
    """Raises a ValueError if a number of layers is so large that creating them would take minutes."""
    if number > most:
        raise ValueError(f"`{name}` must be at most {most}. Received: {name}={number}.")


def check_positive(**sizes):
    """Raises a ValueError if one of the sizes is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={size}.")


def non_finite(variables):
    """Returns the path of the first float variable that contains infinity or NaN, or `None` if all are finite.

    Weights whose squares overflow float32, such as 1e30, count as infinite: no norm or product of two of them exists.
    NumPy checks the values, since JAX would compile a program for each shape.
    """
    for variable in variables:
        if is_float(variable):
            values = ops.convert_to_numpy(variable.value)
            if values.size and not max(values.max(), -values.min()) < LARGEST:  # or NaN
                return variable.path
    return None


def check_finite(array):
    """Returns log-probabilities, losses or a perplexity, an array or a number, after checking that all are finite."""
    if not np.isfinite(array).all():
        raise_not_finite()
    return array


def raise_not_finite():
    """Raises the `ValueError` about a model that has no probabilities."""
    raise ValueError(
        "The log-probabilities or the perplexity are not finite, because the weights of the model have diverged: take "
        "another model, or train again with a lower learning rate. Received: infinity or NaN."
    )


def check_equal(actual, expected, message):
    """Returns an integer after checking that it equals the `expected` one.

    If `actual` is a scalar tensor in a graph of TensorFlow, the check runs with the graph, before the operations that
    depend on the returned tensor, and raises a `tf.errors.InvalidArgumentError`.
    """
    if isinstance(actual, int):
        if actual != expected:
            raise ValueError(message)
        return actual
    import tensorflow as tf

    with tf.control_dependencies([tf.debugging.assert_equal(actual, expected, message)]):
        return tf.identity(actual)


def check_traced_together(tensor, variables):
    """Raises a ValueError if JAX differentiates a tensor, but not the variables that a loss of the tensor reads."""
    if keras.config.backend() != "jax" or not variables:
        return
    import jax

    if not isinstance(tensor, jax.core.Tracer):
        return
    try:
        values = [variable.value for variable in variables]
    except TypeError:  # Keras has taken the values out of the variables, to pass them from step to step
        values = []
    if not any(isinstance(value, jax.core.Tracer) for value in values):
        raise ValueError(
            "The loss reads weights of the output layer, which JAX must know: call `stateless_compute_loss(trainable_"
            "variables, non_trainable_variables, metrics_variables, x, y, y_pred, sample_weight)` in a `train_step` of "
            "your own. Received: a call of `compute_loss`."
        )
