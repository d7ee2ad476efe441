"""Boundaries and dimensions of the bands (clusters) of a vocabulary, and checks of ids."""

import operator

import numpy as np
from keras import ops

from keras_adaptive.ops.word_ids import word_ids


def band_boundaries(vocabulary_size, cutoffs):
    """Returns the boundaries (0, cutoff_0, …, vocabulary_size) of the bands.

    Band i holds the ids from boundaries[i] to boundaries[i + 1] − 1.

    Raises:
        ValueError: If `cutoffs` are not integers, do not increase or leave the vocabulary. The message says so if the
            cutoffs look like the sizes of the bands.
    """
    cutoffs = cutoff_tuple(cutoffs)
    received = f"Received: cutoffs={cutoffs}, vocabulary_size={vocabulary_size}."
    if vocabulary_size < 1:
        raise ValueError(f"`vocabulary_size` must be at least 1. Received: vocabulary_size={vocabulary_size}.")
    if any(low >= high for low, high in zip((0, *cutoffs), cutoffs)):
        if min(cutoffs) > 0 and sum(cutoffs) == vocabulary_size:
            sums = tuple(np.cumsum(cutoffs[:-1]).tolist())
            raise ValueError(f"`cutoffs` must be first ids, not sizes of bands: pass cutoffs={sums}. {received}")
        raise ValueError(f"`cutoffs` must be positive and strictly increasing: sort them. {received}")
    if cutoffs and cutoffs[-1] >= vocabulary_size:
        raise ValueError(f"`cutoffs` must be below `vocabulary_size`: leave out the others. {received}")
    return (0, *cutoffs, int(vocabulary_size))


def cutoff_tuple(cutoffs):
    """Returns the cutoffs as a tuple of Python integers, or raises a ValueError if they are no sequence of them."""
    try:
        given = (None,) if isinstance(cutoffs, str) else tuple(cutoffs)
        whole = tuple(map(int, given))
        if any(map(operator.ne, whole, map(float, given))):
            raise ValueError
    except (OverflowError, TypeError, ValueError):
        example = f"({cutoffs},)" if isinstance(cutoffs, (int, np.integer)) else "(2_000, 10_000), or () for none"
        raise ValueError(
            f"`cutoffs` must be a sequence of integers: pass cutoffs={example}. Received: cutoffs={cutoffs!r}."
        ) from None
    return whole


def band_dimensions(dim, factor, bands):
    """Returns the dimension ⌊dim / factorⁱ⌋ of every band i.

    Raises:
        ValueError: If `factor` is below 1 or a band's dimension would be 0.
    """
    if factor < 1:
        raise ValueError(f"`factor` must be at least 1. Received: factor={factor}.")
    dimensions = tuple(int(dim // factor**band) for band in range(bands))
    if min(dimensions) < 1:
        raise ValueError(
            f"Every band needs a dimension of at least 1: use a smaller factor, fewer cutoffs or a larger dimension. "
            f"Received: dim={dim}, factor={factor}, which gives {dimensions}."
        )
    return dimensions


def check_ids(ids, vocabulary_size, name="tokens"):
    """Returns `ids`, of any shape, as an int32 array after checking on the host that all are in the vocabulary.

    The message of the ValueError contains the `name` of the argument, the first id outside of it, and its place.
    """
    ids = np.asarray(ids)
    if not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"`{name}` must be integers. Received: dtype={ids.dtype}.")
    outside = (ids < 0) | (ids >= vocabulary_size)
    if outside.any():
        place = tuple(int(axis[0]) for axis in np.nonzero(outside))
        raise ValueError(
            f"`{name}` must be ids from 0 to {vocabulary_size - 1}: encode the text with the vocabulary of the model. "
            f"Received: the id {ids[place]} at {place}."
        )
    return ids.astype("int32", copy=False)


def count_outside(ids, vocabulary_size, weights=None):
    """Returns the number of ids outside the vocabulary whose weight is not 0, a float32 scalar, on the device."""
    outside = ops.convert_to_tensor(word_ids(ids, vocabulary_size)) < 0
    if weights is not None:
        outside = outside & (ops.convert_to_tensor(weights) != 0)
    return ops.sum(ops.cast(outside, "float32"))
