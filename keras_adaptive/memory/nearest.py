"""The nearest keys of queries, by the squared Euclidean distance."""

from collections.abc import Sequence

import numpy as np

QUERIES = 512  # queries at a time
KEYS = 2**14  # keys at a time, whose distances to the queries take 32 MiB


def nearest(
    shards: Sequence[tuple[np.ndarray, np.ndarray]], queries: np.ndarray, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distances and words of the nearest keys of each query, in any order.

    Every query is compared with every key in float32, a part of the shards at a time.

    Args:
        shards: List of pairs `(keys, ids)`: (rows, dim), of any float type, and (rows,).
        queries: Keys to look for (queries, dim).
        number: Number of neighbors, at most the number of keys.

    Returns:
        `(distances, ids)`, (queries, number): squared distances, float32, and the ids.

    Raises:
        ValueError: If the dimensions differ.
    """
    queries = np.asarray(queries, "float32")
    for keys, _ in shards[:1]:
        if keys.shape[1] != queries.shape[1]:
            raise ValueError(
                f"The memory has keys of dimension {keys.shape[1]}: it belongs to another model. Received: queries of "
                f"dimension {queries.shape[1]}."
            )
    distances = np.full((len(queries), number), np.inf, "float32")
    words = np.zeros((len(queries), number), "int32")
    for keys, ids in shards:
        for start in range(0, len(ids), KEYS):
            part = np.asarray(keys[start : start + KEYS], "float32")
            squares, names = np.sum(part * part, axis=1), np.asarray(ids[start : start + KEYS])
            for low in range(0, len(queries), QUERIES):
                _keep(distances[low:][:QUERIES], words[low:][:QUERIES], queries[low:][:QUERIES], part, squares, names)
    return distances, words


def _keep(distances, words, queries, keys, squares, ids):
    """Replaces the farthest neighbors of queries by nearer keys, in place."""
    found = squares - 2 * (queries @ keys.T)
    found += np.sum(queries * queries, axis=1)[:, None]
    rows, columns = np.nonzero(found < distances.max(axis=1, keepdims=True))  # few, after the first keys
    counts = np.bincount(rows, minlength=len(queries))
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    nearer = np.full((len(queries), counts.max()), np.inf, "float32")
    names = np.zeros(nearer.shape, "int32")
    nearer[rows, places], names[rows, places] = np.maximum(found[rows, columns], 0), ids[columns]
    both, number = np.concatenate([distances, nearer], axis=1), distances.shape[1]
    kept = np.argpartition(both, number - 1, axis=1)[:, :number]
    distances[:] = np.take_along_axis(both, kept, axis=1)
    words[:] = np.take_along_axis(np.concatenate([words, names], axis=1), kept, axis=1)
