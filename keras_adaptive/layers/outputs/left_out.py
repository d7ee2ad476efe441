"""Checks of the words that predictions leave out."""

import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_same_shape
from keras_adaptive.ops.word_ids import word_ids


def excluded_ids(exclude, hidden, vocabulary_size):
    """Returns the ids to exclude (…, n) for hidden states (…, dim) as a tensor (rows, n) int32, −1 for none."""
    shape, expected = tuple(np.shape(exclude)), tuple(hidden.shape[:-1])
    pairs = zip(shape, expected)
    if len(shape) != len(hidden.shape) or shape[-1] == 0 or any(a != b for a, b in pairs if None not in (a, b)):
        raise ValueError(
            "`exclude` must hold one id or more for each hidden state, −1 for none: pass the shape "
            f"{(*expected, 'n')}. Received: {shape=}."
        )
    ids = ops.convert_to_tensor(word_ids(exclude, vocabulary_size))
    return ops.reshape(ids, [-1, ops.shape(ids)[-1]])


def allowed_words(allowed, vocabulary_size):
    """Returns which words `top_k` may return, a bool tensor (vocabulary_size,)."""
    check_same_shape(allowed, (vocabulary_size,), "allowed", "the vocabulary")
    if not ops.is_tensor(allowed) and not np.any(allowed):
        raise ValueError("`allowed` must be true for at least one word. Received: allowed=False for all words.")
    return ops.cast(allowed, "bool")
