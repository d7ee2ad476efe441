"""Whether torch records operations for gradients; TensorFlow and JAX record only what is differentiated."""

import contextlib

import keras


def recording(tensor=None):
    """Returns a context in which torch records operations only for a tensor that needs a gradient, or never for `None`.

    What is computed without a record can be turned into a NumPy array, and holds no memory for a backward pass.
    """
    if keras.config.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.set_grad_enabled(torch.is_grad_enabled() and getattr(tensor, "requires_grad", False))
