"""Single steps of an optimizer, and of layers that read a text piece by piece."""

import keras
import numpy as np
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


def in_steps(step, x, state, sizes, position=False):
    """Returns the joined outputs and the states after pieces of these sizes of the text `x` (batch, length, …).

    `step` is called with a piece, the state and, if asked, the position of the piece.
    """
    outputs, states, start = [], [], 0
    for size in sizes:
        place = [np.int32(start)] if position else []
        output, state = step(x[:, start : start + size], state, *place)
        outputs.append(output)
        states.append(state)
        start += size
    return np.concatenate(outputs, axis=1), states


def changed_at_each_token(run, *arrays):
    """Yields `(token, run(*arrays))`, where 1 is added to this token of all arrays."""
    for token in range(arrays[0].shape[1]):
        here = np.arange(arrays[0].shape[1]) == token
        yield token, run(*(array + here.reshape(-1, *[1] * (array.ndim - 2)).astype("float32") for array in arrays))
