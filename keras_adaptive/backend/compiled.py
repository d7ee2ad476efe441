"""Compilation of functions of tensors and variables, for use outside `fit`."""

import functools

import keras
from keras import ops


def compiled(function, variables, donate_argnums=()):
    """Compiles a function for inference, without gradients.

    Every call reads the current values of `variables`. Under JAX, the function is compiled again for each new shape of
    an argument.

    Args:
        function: Function of nested structures of tensors, which returns such a structure. It must not assign to a
            variable.
        variables: List of all variables that the function reads.
        donate_argnums: Positions of arguments that the caller does not use again. JAX writes results into their memory,
            so that a long cache is not copied for each word.

    Returns:
        The compiled function.
    """
    backend = keras.config.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, reduce_retracing=True, autograph=False)
    if backend == "torch":
        import torch

        return torch.no_grad()(function)
    import jax

    @functools.partial(jax.jit, donate_argnums=[1 + number for number in donate_argnums])
    def pure(values, *arguments):
        with keras.StatelessScope(state_mapping=list(zip(variables, values))):
            return function(*arguments)

    return lambda *arguments: pure([variable.value for variable in variables], *arguments)


def constant(array):
    """Returns a NumPy array as a tensor that is created outside of any graph, so that many functions can use it."""
    backend = keras.config.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.init_scope():
            return tf.constant(array)
    if backend == "jax":
        import jax

        with jax.ensure_compile_time_eval():
            return ops.convert_to_tensor(array)
    return ops.convert_to_tensor(array)
