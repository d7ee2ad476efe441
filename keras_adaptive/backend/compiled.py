"""Compilation of functions of tensors and variables, for use outside `fit`."""

import functools

import keras
from keras import ops


def compiled(function, variables, donate_argnums=()):
    """Returns `function` compiled for inference: no gradients, and the values of `variables` read at every call.

    `function` takes and returns nested structures of tensors, and must not assign to a variable. A new shape of an
    argument compiles again under JAX. The caller must not use the arguments at the positions `donate_argnums` again:
    JAX writes results over them, so that a long cache is not copied for each word.
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
    """Returns a tensor of a NumPy array, made once and outside of any graph, for every function that uses it."""
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
