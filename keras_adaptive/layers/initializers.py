"""Starting values that several layers share."""

import keras


def fan_in_uniform(fan_in):
    """U(±1/√fan_in): the starting values of the published models' feed-forward weights and of most biases."""
    bound = fan_in**-0.5
    return keras.initializers.RandomUniform(-bound, bound)
