"""A function of tensors and variables, compiled as the backend compiles, for use outside `fit`."""

import keras


def compiled(function, variables):
    """Returns `function` compiled for inference: no gradients, and the values of `variables` read at every call.

    `function` takes and returns nested structures of tensors, and must not assign to a variable. A new shape of an
    argument compiles anew under JAX.
    """
    backend = keras.config.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, reduce_retracing=True)
    if backend == "torch":
        import torch

        return torch.no_grad()(function)
    import jax

    @jax.jit
    def pure(values, *arguments):
        with keras.StatelessScope(state_mapping=list(zip(variables, values))):
            return function(*arguments)

    return lambda *arguments: pure([variable.value for variable in variables], *arguments)
