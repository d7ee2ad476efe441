import numpy as np
from keras import ops

from keras_adaptive.data import SPECIAL_WORDS
from keras_adaptive.layers import Input

CHUNK = 8192  # vectors to compute at a time


def nearest(word_input: Input, ids: np.ndarray, k: int) -> list[list[tuple[int, float]]]:
    """Returns the nearest words of each id by the cosine of their vectors, without special words and the id itself.

    For each id it is a list of at most `k` pairs of another id and the cosine, the nearest first.
    """
    vectors = _directions(word_input, ids)
    starts = range(0, word_input.vocabulary_size, CHUNK)
    chunks = (np.arange(start, min(start + CHUNK, word_input.vocabulary_size)) for start in starts)
    cosines = np.concatenate([vectors @ _directions(word_input, chunk).T for chunk in chunks], axis=1)
    cosines[:, : len(SPECIAL_WORDS)] = -np.inf
    cosines[np.arange(len(ids)), ids] = -np.inf
    rows = zip(cosines, np.argsort(-cosines, axis=1, kind="stable")[:, :k])
    return [[(int(id), float(row[id])) for id in order if row[id] > -np.inf] for row, order in rows]


def _directions(word_input, ids):
    """Returns the vectors of ids, scaled to length 1; vectors of zeros are unchanged."""
    vectors = ops.convert_to_numpy(ops.cast(word_input(ids.astype("int32")), "float32"))
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
