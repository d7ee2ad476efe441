import keras
from keras import ops

from keras_adaptive.backend.rows import RowGradient


def global_norm(gradients):
    """Returns √Σ x² over all elements of all gradients, a float32 scalar. Each tensor is read only once.

    Args:
        gradients: Tensors, or `RowGradient`s with distinct ids.
    """
    backend = keras.config.backend()
    tensors = [one.values if isinstance(one, RowGradient) else one for one in gradients]
    tensors = [ops.cast(tensor, "float32") for tensor in tensors]
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.linalg.global_norm(tensors)
    if backend == "torch":
        import torch

        return torch.nn.utils.get_total_norm(tensors)
    return ops.sqrt(sum(ops.sum(ops.square(tensor)) for tensor in tensors))


def scaled(gradients, factor):
    """Returns the gradients times a scalar. torch writes into the given tensors, to need no memory of their size."""
    return [
        one._replace(values=_scaled(one.values, factor)) if isinstance(one, RowGradient) else _scaled(one, factor)
        for one in gradients
    ]


def _scaled(tensor, factor):
    if keras.config.backend() == "torch":
        return tensor.mul_(factor)
    return tensor * ops.cast(factor, tensor.dtype)
