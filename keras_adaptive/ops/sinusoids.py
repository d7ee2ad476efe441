"""Sinusoids of positions or distances."""

import math

import numpy as np
from keras import ops


def sinusoids(places, dim, divisor):
    """Returns the vectors [sin(p·w), cos(p·w)] of places p, float32 (…, dim), w_k = 10000^(−k/divisor), k < dim/2.

    Args:
        places: Tensor (…) of numbers.
        dim: Even dimension.
        divisor: dim/2 for geometric frequencies (Vaswani et al. 2017), dim/2 − 1 in fairseq.
    """
    frequencies = np.exp(np.arange(dim // 2) * (-math.log(10000.0) / divisor)).astype("float32")
    angles = ops.cast(places, "float32")[..., None] * ops.convert_to_tensor(frequencies)
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
