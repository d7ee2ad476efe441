"""Causal attention, over all earlier positions or over a window, with or without linear biases."""

import keras
import numpy as np
from keras import ops

from keras_adaptive.ops.chunks import chunk_sizes

MOST_BLOCKS = 8  # maximum number of blocks of attention without a window, since compilers compile each


def alibi_slopes(num_heads):
    """Returns the slopes of the linear biases (ALiBi) of all heads, a float64 array (num_heads,).

    Head i of n has the slope 2^(−8i/n), i from 1, if n is a power of two. Other numbers of heads take the slopes of the
    largest power of two below, then every second slope of the power above (Press et al., Train Short, Test Long, 2022,
    section 3, and its program).
    """
    power = 2 ** (num_heads.bit_length() - 1)
    slopes, between = (2.0 ** (-8 * np.arange(1, number + 1) / number) for number in (power, 2 * power))
    return np.concatenate([slopes, between[::2]])[:num_heads]


def causal_attention(query, key, value, position=0, drop=None, window=None, slopes=None):
    """Computes causal attention: the mean of the visible values, weighted by the float32 softmax of query · key.

    Query i has position `position` + i. Without a window it sees keys 0 to `position` + i. With a window it sees its
    own key and the `window` - 1 keys before it. Time and memory are then linear in the number of queries, which are
    divided into blocks of at least `window` - 1; each block sees its own keys and the keys of the previous block.

    Args:
        query: Scaled queries (batch, steps, heads, head_dim).
        key: Keys (batch, length, heads, head_dim), the first at position 0. With a window the last key belongs to the
            last query, and `length` is from `steps` to `steps` + `window` - 1; keys before position 0 are not visible.
        value: Values (batch, length, heads, head_dim).
        position: Number of tokens before the first query, int or int tensor.
        drop: Function that is applied to the probabilities, which are (batch, heads, steps, length), or
            (batch · blocks, heads, block, 2 · block) with a window and more than one block. Optional.
        window: Number of keys that a query sees, its own included; `None` for all up to its own.
        slopes: Array (heads,): a head's slope times the distance of query and key is subtracted from their score.
            Optional.

    Returns:
        A tensor (batch, steps, heads, head_dim).
    """
    if window is not None:
        return _windowed(query, key, value, position, drop, window, slopes)
    from_the_start = isinstance(position, int) and position == 0
    if from_the_start and drop is None and not (keras.config.backend() == "torch" and _is_short(key)):
        if keras.config.backend() == "torch" and slopes is None:
            return _torch_attention(query, key, value, "bkhd", is_causal=True)
        return _from_the_start(query, key, value, slopes)
    return _attend_from(position, query, key, value, drop, slopes)


def cached_attention(query, key, value, position, drop=None, slopes=None):
    """Computes `causal_attention` without a window, of a cache of keys and values (batch, heads, length, head_dim)."""
    return _attend_from(position, query, key, value, drop, slopes, "bhkd")


def _attend_from(position, query, key, value, drop=None, slopes=None, axes="bkhd"):
    """Attends to the keys up to the position of each query."""
    places, keys = position + ops.arange(ops.shape(query)[1]), ops.arange(ops.shape(key)[axes.index("k")])
    return attend(query, key, value, _mask(keys[None, :] <= places[:, None], places, keys, slopes), drop, axes)


def _mask(visible, places, keys, slopes):
    """Returns which keys queries see; with slopes, what is added to the scores: float32 (…, heads, steps, length)."""
    if slopes is None:
        return visible
    distances = ops.cast(places[:, None] - keys[None, :], "float32")
    slopes = ops.convert_to_tensor(np.asarray(slopes, "float32")[:, None, None])
    return -slopes * ops.where(visible, distances, 1e12)


def _from_the_start(query, key, value, slopes):
    """Attends in blocks of queries, each to the keys up to its end, since half of all scores are not visible."""
    length = query.shape[1] if isinstance(query.shape[1], int) else 0  # graphs and exports may not know it
    size = max(chunk_sizes().queries, -(-length // MOST_BLOCKS))
    starts = range(0, length, size)
    if len(starts) < 2:
        return _attend_from(0, query, key, value, slopes=slopes)
    bounds = [(start, start + size) for start in starts]
    blocks = [
        _attend_from(low, query[:, low:high], key[:, :high], value[:, :high], slopes=slopes) for low, high in bounds
    ]
    return ops.concatenate(blocks, axis=1)


def block_size(window):
    """Returns the number of queries in a block of windowed attention."""
    return max(window - 1, chunk_sizes().window_queries)


def _windowed(query, key, value, position, drop, window, slopes):
    batch, steps, heads, head_dim = ops.shape(query)
    before = ops.shape(key)[1] - steps  # keys before the first query, of which `known` belong to the text
    known = min(before, position) if _are_numbers(before, position) else ops.minimum(before, position)
    block = block_size(window)
    if isinstance(steps, int) and steps <= block:
        keys = ops.arange(ops.shape(key)[1]) - before  # positions are counted from the first query
        queries = ops.arange(steps)
        mask = _mask(_visible(queries, keys, window, known), queries, keys, slopes)
        return attend(query, key, value, mask, drop)
    blocks = -(-steps // block)
    rest = blocks * block - steps
    starts = block * ops.arange(blocks)[:, None]
    visible = _visible(starts + ops.arange(block), starts + ops.arange(-block, block), window, known)
    visible = ops.broadcast_to(visible, (batch, blocks, block, 2 * block))
    visible = ops.reshape(visible, (batch * blocks, 1, block, 2 * block))
    query = ops.reshape(_pad(query, 0, rest), (batch * blocks, block, heads, head_dim))
    key, value = (_with_previous(_pad(array, block - before, rest), blocks, block) for array in (key, value))
    mask = _mask(visible, ops.arange(block), ops.arange(-block, block), slopes)  # distances are those of every block
    mixed = attend(query, key, value, mask, drop)
    return ops.reshape(mixed, (batch, blocks * block, heads, head_dim))[:, :steps]


def _are_numbers(*values):
    return all(isinstance(value, int) for value in values)


def _visible(queries, keys, window, known):
    """Returns whether queries (…, steps) see keys (…, length), given their positions, as (…, steps, length)."""
    keys = keys[..., None, :]
    distance = queries[..., :, None] - keys
    return (distance >= 0) & (distance < window) & (keys >= -known)


def _pad(array, front, back):
    """Returns an array (batch, length, heads, head_dim) with zeros before and after its tokens."""
    batch, _, heads, head_dim = ops.shape(array)
    front, back = (ops.zeros((batch, number, heads, head_dim), array.dtype) for number in (front, back))
    return ops.concatenate([front, array, back], axis=1)


def _with_previous(array, blocks, block):
    """Cuts (batch, tokens, …) into blocks, each preceded by its previous block: (batch · blocks, 2 · block, …)."""
    batch, _, heads, head_dim = ops.shape(array)
    array = ops.reshape(array, (batch, blocks + 1, block, heads, head_dim))
    pairs = ops.concatenate([array[:, :-1], array[:, 1:]], axis=2)
    return ops.reshape(pairs, (batch * blocks, 2 * block, heads, head_dim))


def attend(query, key, value, mask, drop=None, axes="bkhd"):
    """Computes the mean of the values, weighted by the softmax of query · key.

    Args:
        query, key, value, drop: As in `causal_attention`.
        mask: Which keys queries see, bool, or what is added to the scores, float32. It is broadcast to (batch, heads,
            steps, length).
        axes: Order of the axes of keys and values. Products with "bhkd", in place of (batch, length, heads, head_dim),
            copy neither for a single query: with 64 texts under JAX on a CPU, they take a sixth of the time.
    """
    if keras.config.backend() == "torch" and drop is None and not _is_short(key, axes):
        return _torch_attention(query, key, value, axes, attn_mask=mask)
    scores = ops.einsum(f"bqhd,{axes}->bhqk", query, key)
    if not _has_float32_softmax(scores):
        scores = ops.cast(scores, "float32")
    if keras.config.backend() == "jax" and keras.backend.standardize_dtype(value.dtype) != "float16":
        return _divided_late(ops.where(mask, scores, -1e9) if _is_bool(mask) else scores + mask, value, drop, axes)
    if scores.shape[-1] == 1:  # a token that sees only itself; Keras warns of a softmax of one number
        probabilities = ops.exp(scores - scores)
    else:
        biases = ops.where(mask, 0.0, -1e9) if _is_bool(mask) else mask
        probabilities = ops.softmax(scores + ops.cast(biases, scores.dtype), axis=-1)
    probabilities = ops.cast(probabilities, value.dtype)
    probabilities = probabilities if drop is None else drop(probabilities)
    return ops.einsum(f"bhqk,{axes}->bqhd", probabilities, value)


def _is_bool(mask):
    return keras.backend.standardize_dtype(mask.dtype) == "bool"


def _has_float32_softmax(scores):
    """Returns whether the softmax computes in float32 without a cast of the scores: torch's softmax of bfloat16."""
    return keras.config.backend() == "torch" and keras.backend.standardize_dtype(scores.dtype) == "bfloat16"


def _is_short(key, axes="bkhd"):
    """Returns whether separate products take less time than torch's fused kernel: for bfloat16 on a CPU."""
    return _has_float32_softmax(key) and key.shape[axes.index("k")] <= chunk_sizes().short_keys


def _divided_late(scores, value, drop, axes):
    """Attends with exponentials, and divides the (…, head_dim) results by their sums.

    Training then keeps one array of the size of the scores; XLA would also keep the probabilities and a divisor of that
    size. Float16 could not hold the results before the division.
    """
    exps = ops.exp(scores - ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True)))
    total = ops.expand_dims(ops.transpose(ops.sum(exps, axis=-1), (0, 2, 1)), -1)  # (batch, steps, heads, 1)
    exps = ops.cast(exps, value.dtype)
    mixed = ops.einsum(f"bhqk,{axes}->bqhd", exps if drop is None else drop(exps), value)
    return ops.cast(mixed / total, value.dtype)


def _torch_attention(query, key, value, axes, attn_mask=None, is_causal=False):
    """Runs torch's fused kernel, which takes a third of the time of the separate products on a CPU.

    For a single query of each of many texts it takes a fifth, since the products would copy keys and values.
    """
    from torch.nn.functional import scaled_dot_product_attention

    if attn_mask is not None and not _is_bool(attn_mask):
        attn_mask = attn_mask.to(query.dtype)
    if attn_mask is not None and attn_mask.ndim == 3:
        attn_mask = attn_mask[None]  # the kernel for a CPU takes masks of two or four axes
    if axes == "bkhd":
        key, value = key.transpose(1, 2), value.transpose(1, 2)
    how = {"scale": 1.0, "attn_mask": attn_mask, "is_causal": is_causal}
    return scaled_dot_product_attention(query.transpose(1, 2), key, value, **how).transpose(1, 2)
