"""Functions with custom gradients, on every backend."""

import weakref

import keras


def is_float(tensor):
    """Returns whether a tensor can have a gradient."""
    return keras.backend.is_float_dtype(keras.backend.standardize_dtype(tensor.dtype))


def custom_vjp(forward, backward):
    """Returns a function `f(*tensors)` with a custom gradient.

    Operations inside `forward` are not recorded for differentiation, so that intermediate results are freed
    immediately. All arguments of `f` must be tensors. Only first derivatives are supported.

    Args:
        forward: Function `forward(*tensors)` that returns `(value, residuals)`: a tensor or a tuple of tensors, and a
            tuple of tensors.
        backward: Function `backward(residuals, upstream)` that returns one gradient per tensor, `None` for integers.
            `upstream` is the upstream gradient in the structure of the value.
    """
    return _ADAPTERS[keras.config.backend()](forward, backward)


def _tensorflow(forward, backward):
    import tensorflow as tf

    @_custom_gradient
    def once(gradient, *tensors):
        return tf.identity(gradient), _refuse

    @_custom_gradient
    def unrecorded(*tensors):
        value, residuals = forward(*map(tf.stop_gradient, tensors))

        def gradients(*upstream):
            upstream = upstream if isinstance(value, tuple) else upstream[0]
            return [None if g is None else once(g, *tensors) for g in backward(residuals, upstream)]

        return value, gradients

    return lambda *tensors: unrecorded(*map(tf.convert_to_tensor, tensors))


def _custom_gradient(function):
    """Returns `tf.custom_gradient(function)` whose graphs are freed when nobody needs them.

    TensorFlow registers the gradient of every call in a graph by a name of its own, and never removes it: the process
    would keep the graphs of all models that it ever trained, and the weights that they read. Here the registry has a
    weak reference, and the graph keeps its gradients.
    """
    import tensorflow as tf
    from tensorflow.python.framework import ops

    def call(*tensors):
        result = differentiable(*tensors)
        if not tf.executing_eagerly():
            graph, known = ops.get_default_graph(), ops.gradient_registry._registry
            name = tf.nest.flatten(result)[0].op.get_attr("_gradient_op_type").decode()
            gradient = known[name]["type"]
            graph._custom_gradients = [*getattr(graph, "_custom_gradients", ()), gradient]
            reference = weakref.ref(gradient)
            known[name]["type"] = lambda *given: reference()(*given)
            weakref.finalize(graph, known.pop, name, None)
        return result

    differentiable = tf.custom_gradient(function)
    return call


def _refuse(*upstream):
    raise NotImplementedError("This function has no second derivatives: differentiate it once.")


def _jax(forward, backward):
    import jax

    function = jax.custom_vjp(lambda *tensors: forward(*tensors)[0])
    function.defvjp(forward, lambda residuals, upstream: tuple(backward(residuals, upstream)))
    return function


def _torch(forward, backward):
    import torch

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(context, *tensors):
            value, residuals = forward(*tensors)
            context.save_for_backward(*residuals)
            context.several = isinstance(value, tuple)
            return value

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(context, *upstream):
            return tuple(backward(context.saved_tensors, upstream if context.several else upstream[0]))

    return Function.apply


_ADAPTERS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}


def with_gradient_of(tensor, value):
    """Returns `value`, a constant, with the gradient of `tensor`, which compilers then need not compute."""
    return custom_vjp(lambda tensor, value: (value, ()), lambda _, upstream: [upstream, None])(tensor, value)


def vjp(function, arguments, upstream):
    """Returns the list of the gradients of Σ upstream·function(*arguments).

    It serves the `backward` of a function that recomputes its values. The gradient of an integer argument is `None`,
    and the gradient of an argument without influence is zero.
    """
    floats = [i for i, argument in enumerate(arguments) if is_float(argument)]
    gradients = dict(zip(floats, _VJPS[keras.config.backend()](function, list(arguments), floats, upstream)))
    return [gradients.get(i) for i in range(len(arguments))]


def _tensorflow_vjp(function, arguments, floats, upstream):
    import tensorflow as tf

    sources = [arguments[i] for i in floats]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        value = function(*arguments)
    gradients = tape.gradient(value, sources, tf.cast(upstream, value.dtype), tf.UnconnectedGradients.ZERO)
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def _jax_vjp(function, arguments, floats, upstream):
    import jax

    def of_floats(*values):
        mixed = dict(zip(floats, values))
        return function(*(mixed.get(i, argument) for i, argument in enumerate(arguments)))

    value, pull = jax.vjp(of_floats, *(arguments[i] for i in floats))
    return pull(upstream.astype(value.dtype))


def _torch_vjp(function, arguments, floats, upstream):
    import torch

    with torch.enable_grad():
        leaves = {i: arguments[i].detach().requires_grad_() for i in floats}
        value = function(*(leaves.get(i, argument) for i, argument in enumerate(arguments)))
        return torch.autograd.grad(value, list(leaves.values()), upstream, materialize_grads=True)


_VJPS = {"tensorflow": _tensorflow_vjp, "jax": _jax_vjp, "torch": _torch_vjp}
