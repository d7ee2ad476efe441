"""Compilation of functions of tensors and variables, for use outside `fit`."""

import functools

import keras
from keras import ops

# Options of XLA for a program that runs once: it takes a third of the time to compile on a CPU, and longer to run.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def compiled(function, variables, donate_argnums=(), quick_start=False):
    """Compiles a function for inference, without gradients.

    Every call reads the current values of `variables`. Under JAX, the function is compiled again for each new shape of
    an argument.

    Args:
        function: Function of nested structures of tensors, which returns such a structure. It must not assign to a
            variable.
        variables: List of all variables that the function reads.
        donate_argnums: Positions of arguments that the caller does not use again. JAX writes results into their memory,
            so that a long cache is not copied for each word.
        quick_start: Whether the first call with arguments of new shapes compiles a slower program in less time, for
            functions that may be called only once. The second such call compiles the usual program, whose results
            differ by rounding errors. Only JAX on a CPU does so.
    """
    backend = keras.config.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, reduce_retracing=True, autograph=False)
    if backend == "torch":
        import torch

        return torch.no_grad()(function)
    import jax

    def pure(values, *arguments):
        with keras.StatelessScope(state_mapping=list(zip(variables, values))):
            return function(*arguments)

    jit = functools.partial(jax.jit, pure, donate_argnums=[1 + number for number in donate_argnums])
    program = jit()
    if quick_start and jax.default_backend() == "cpu":
        program = _started_quickly(program, jit(compiler_options=QUICK))
    return lambda *arguments: program([variable.value for variable in variables], *arguments)


def compiled_part(function, variables=(), donate_argnums=()):
    """Returns a part of a function that `compiled` compiles, itself compiled where the whole is not.

    TensorFlow and JAX compile the whole, with the function as it is. Under torch, the part becomes a `TorchGraph`.
    Its operations must not depend on the values of tensors, as the operations of a tail depend on the rows in it. It
    takes the arguments of `compiled`.
    """
    if keras.config.backend() != "torch":
        return function
    from keras_adaptive.backend.torch_graph import TorchGraph

    return TorchGraph(function, variables, donate_argnums)


def _started_quickly(program, quick):
    """Returns a function that calls `quick` first for arguments of new shapes, and `program` from then on."""
    known = set()

    def run(values, *arguments):
        shapes = tuple((part.shape, str(part.dtype)) for part in keras.tree.flatten(arguments))
        first = shapes not in known
        known.add(shapes)
        return (quick if first else program)(values, *arguments)

    return run


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
