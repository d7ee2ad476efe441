"""Loops over time."""

import keras


def scan(step, state, inputs, outputs, reverse=False):
    """Runs `step` over the first axis of `inputs`, in a loop whose intermediate results are not recorded.

    It serves the two functions of a `custom_vjp`, since TensorFlow cannot differentiate it. `keras.ops.scan` requires
    that the outputs of a step have the shapes of the state.

    Args:
        step: Function `(state, inputs) → (state, outputs)` of one step, all tuples of tensors.
        state: The state before the first step.
        inputs: Tuple of tensors (time, …).
        outputs: Tuple of the `(shape, dtype)` of each output of a step.
        reverse: Whether to begin with the last step. The outputs have the order of the inputs.

    Returns:
        `(state, outputs)`: the state after the last step, and the outputs (time, …).
    """
    return _SCANS[keras.config.backend()](step, tuple(state), tuple(inputs), outputs, reverse)


def _tensorflow(step, state, inputs, outputs, reverse):
    import tensorflow as tf

    if inputs[0].shape[0] == 1:  # as in generation; LiteRT has no form of the loop
        state, results = step(state, tuple(tensor[0] for tensor in inputs))
        return state, tuple(result[None] for result in results)
    time = inputs[0].shape[0] or tf.shape(inputs[0])[0]
    arrays = tuple(tf.TensorArray(dtype, time, element_shape=shape) for shape, dtype in outputs)

    def body(number, state, arrays):
        place = time - 1 - number if reverse else number
        state, results = step(state, tuple(tensor[place] for tensor in inputs))
        arrays = tuple(array.write(place, result) for array, result in zip(arrays, results, strict=True))
        return number + 1, state, arrays

    _, state, arrays = tf.while_loop(lambda number, *_: number < time, body, (0, state, arrays), parallel_iterations=1)
    return state, tuple(array.stack() for array in arrays)


def _jax(step, state, inputs, outputs, reverse):
    import jax

    return jax.lax.scan(step, state, inputs, reverse=reverse)


def _torch(step, state, inputs, outputs, reverse):
    import torch

    time = len(inputs[0])
    kept = [torch.empty(time, *shape, dtype=getattr(torch, dtype), device=inputs[0].device) for shape, dtype in outputs]
    for place in reversed(range(time)) if reverse else range(time):
        state, results = step(state, tuple(tensor[place] for tensor in inputs))
        for array, result in zip(kept, results, strict=True):
            array[place] = result
    return state, tuple(kept)


_SCANS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
