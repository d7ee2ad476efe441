"""Initializers that several layers share."""

import keras
from keras import ops


def fan_in_uniform(fan_in):
    """Returns the initializer U(±1/√fan_in) of feed-forward weights and most biases in the published models."""
    bound = fan_in**-0.5
    return keras.initializers.RandomUniform(-bound, bound)


def open_forget_gates(shape, dtype=None):
    """Returns biases (4·units,) of an LSTM: 1 for the forget gates, which are the second quarter, and 0 elsewhere."""
    return ops.repeat(ops.convert_to_tensor([0, 1, 0, 0], dtype), shape[0] // 4)
