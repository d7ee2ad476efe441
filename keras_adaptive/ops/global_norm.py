import keras
from keras import ops


def global_norm(tensors):
    """Returns √Σ x² over all elements of all `tensors`, a float32 scalar. Each tensor is read only once."""
    backend = keras.config.backend()
    tensors = [ops.cast(tensor, "float32") for tensor in tensors]
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.linalg.global_norm(tensors)
    if backend == "torch":
        import torch

        return torch.nn.utils.get_total_norm(tensors)
    return ops.sqrt(sum(ops.sum(ops.square(tensor)) for tensor in tensors))


def scaled(tensors, factor):
    """Returns the tensors times a scalar. torch writes into the given tensors, to need no memory of their size."""
    if keras.config.backend() == "torch":
        return [tensor.mul_(factor) for tensor in tensors]
    return [tensor * ops.cast(factor, tensor.dtype) for tensor in tensors]
