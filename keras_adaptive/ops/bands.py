"""Boundaries and dimensions of the bands (clusters) of a vocabulary."""

import operator

import numpy as np


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
