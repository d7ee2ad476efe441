"""A function with a gradient of its own, on every backend."""

import keras


def custom_vjp(forward, backward):
    """Returns `f(*tensors)` whose value and gradient are computed by two functions.

    `forward(*tensors)` returns `(value, residuals)` with one tensor as its value and a tuple of tensors as
    residuals; `backward(residuals, upstream)` returns one gradient per tensor, `None` where there is none
    (integers). Nothing inside `forward` is recorded for differentiation, so its intermediate results are freed
    at once. Only tensors may be passed, and only first derivatives exist.
    """
    return _ADAPTERS[keras.config.backend()](forward, backward)


def _tensorflow(forward, backward):
    import tensorflow as tf

    @tf.custom_gradient
    def once(gradient, *tensors):
        return tf.identity(gradient), _refuse

    @tf.custom_gradient
    def unrecorded(*tensors):
        value, residuals = forward(*map(tf.stop_gradient, tensors))

        def gradients(upstream):
            return [None if g is None else once(g, *tensors) for g in backward(residuals, upstream)]

        return value, gradients

    return lambda *tensors: unrecorded(*map(tf.convert_to_tensor, tensors))


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
            return value

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(context, upstream):
            return tuple(backward(context.saved_tensors, upstream))

    return Function.apply


_ADAPTERS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
