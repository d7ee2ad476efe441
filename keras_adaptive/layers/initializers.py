"""Starting values that several layers share."""

import keras


def fan_in_uniform(fan_in):
    """Returns the initializer U(±1/√fan_in) of the feed-forward weights and of most biases in the published models."""
    bound = fan_in**-0.5
    return keras.initializers.RandomUniform(-bound, bound)
