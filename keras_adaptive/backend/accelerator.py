"""Whether the backend computes on an accelerator."""

import functools
import os

import keras


@functools.cache
def on_accelerator() -> bool:
    """Returns whether the backend places tensors on a GPU or TPU. The answer holds for the life of the process.

    The question is about the process, not about a tensor, so that it can be asked while a function is traced, for each
    replica, and before any tensor exists. It does not initialize the devices of TensorFlow, which may still be
    configured afterwards.
    """
    return _DEVICES[keras.config.backend()]()


def _tensorflow():
    import tensorflow as tf

    return any(device.device_type in ("GPU", "TPU") for device in tf.config.get_visible_devices())


def _jax():
    import jax

    return jax.default_backend() != "cpu"


def _torch():
    import torch

    chosen = os.environ.get("KERAS_TORCH_DEVICE")  # Keras reads it once, too
    return not chosen.startswith("cpu") if chosen else torch.accelerator.is_available()


_DEVICES = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
