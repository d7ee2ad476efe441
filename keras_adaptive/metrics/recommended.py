"""What metrics of lists of recommended items share."""

import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_same_shape
from keras_adaptive.ops.word_ids import word_ids


def checked_lists(ids, k, items, sample_weight):
    """Returns the first k ids of every list, (lists, k) int32 with −1 for no item, and the weights (lists,) float32.

    Raises:
        ValueError: If the lists have fewer than k ids, or weights have another shape.
    """
    shape = np.shape(ids)
    if not shape or shape[-1] < k:
        raise ValueError(f"`ids` must have the shape (…, at least {k}): pass lists of k={k} items. Received: {shape=}.")
    if sample_weight is not None:
        check_same_shape(sample_weight, shape[:-1], "sample_weight", "the lists")
    ids = ops.reshape(ops.convert_to_tensor(word_ids(ids, items))[..., :k], (-1, k))
    weights = ops.ones(ops.shape(ids)[0]) if sample_weight is None else ops.cast(sample_weight, "float32")
    return ids, ops.reshape(weights, (-1,))
