"""Single steps of an optimizer."""

import keras
from keras import ops


def apply(optimizer, variables, gradients, rate=None):
    """Takes one step, at another rate if one is given, and returns the variables after it as NumPy arrays."""
    if rate is not None:
        optimizer.learning_rate = float(rate)
    gradients = [ops.convert_to_tensor(gradient, "float32") for gradient in gradients]
    if keras.config.backend() == "jax":
        if not optimizer.built:
            optimizer.build(variables)
        state = [v.value for v in optimizer.variables], gradients, [v.value for v in variables]
        values, state = optimizer.stateless_apply(*state)
        for variable, value in zip([*variables, *optimizer.variables], [*values, *state], strict=True):
            variable.assign(value)
    else:
        optimizer.apply(gradients, variables)
    return [variable.numpy().copy() for variable in variables]
