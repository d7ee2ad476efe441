import keras
from keras import ops

from keras_adaptive.backend.sparse.gradients import RowGradient

LARGEST = 1e38  # about the largest float32


def global_norm(gradients):
    """Computes √Σ x² over all gradients, tensors or `RowGradient`s with distinct ids, reading each tensor only once."""
    backend = keras.config.backend()
    tensors = [gradient.values if isinstance(gradient, RowGradient) else gradient for gradient in gradients]
    tensors = [ops.cast(tensor, "float32") for tensor in tensors]
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.linalg.global_norm(tensors)
    if backend == "torch":
        import torch

        return torch.nn.utils.get_total_norm(tensors)
    return ops.sqrt(sum(ops.sum(ops.square(tensor)) for tensor in tensors))


def clip_factor(norm, bound):
    """Returns the factor, at most 1, that scales gradients of a norm, a float32 scalar, to a norm of at most `bound`.

    A bound beyond float32, for which the quotient would be ∞ / ∞, changes nothing.
    """
    bound = min(bound, LARGEST)
    return bound / ops.maximum(norm, bound)


def scaled(gradients, factor):
    """Returns the gradients times a scalar. torch writes into the given tensors, which saves memory of their size."""
    return [
        gradient._replace(values=_scaled(gradient.values, factor))
        if isinstance(gradient, RowGradient)
        else _scaled(gradient, factor)
        for gradient in gradients
    ]


def _scaled(tensor, factor):
    if keras.config.backend() == "torch":
        return tensor.mul_(factor)
    return tensor * ops.cast(factor, tensor.dtype)
