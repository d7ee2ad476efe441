"""Attention of every position to itself and to the positions before it."""

import keras
from keras import ops


def causal_attention(query, key, value, position=0, drop=None):
    """Returns the mean of the values that each query sees, weighted by the softmax of query · key in float32.

    Query i has position `position` + i and sees keys 0 to `position` + i.

    Args:
        query: Scaled queries (batch, steps, heads, head_dim).
        key: Keys (batch, length, heads, head_dim), the first at position 0.
        value: Values (batch, length, heads, head_dim).
        position: Number of tokens before the first query, int or int tensor.
        drop: Function that is applied to the probabilities (batch, heads, steps, length), optional.

    Returns:
        A tensor (batch, steps, heads, head_dim).
    """
    from_the_start = isinstance(position, int) and position == 0
    if keras.config.backend() == "torch" and from_the_start and drop is None:
        return _torch_attention(query, key, value)
    scores = ops.cast(ops.einsum("bqhd,bkhd->bhqk", query, key), "float32")
    places = position + ops.arange(ops.shape(query)[1])
    visible = ops.arange(ops.shape(key)[1])[None, :] <= places[:, None]  # (steps, length)
    probabilities = ops.cast(ops.softmax(ops.where(visible, scores, -1e9), axis=-1), value.dtype)
    probabilities = probabilities if drop is None else drop(probabilities)
    return ops.einsum("bhqk,bkhd->bqhd", probabilities, value)


def _torch_attention(query, key, value):
    """Runs torch's own kernel, which takes a third of the time of the products on a CPU."""
    from torch.nn.functional import scaled_dot_product_attention

    heads_first = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return scaled_dot_product_attention(*heads_first, is_causal=True, scale=1.0).transpose(1, 2)
