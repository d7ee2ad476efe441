"""The nearest keys of queries, by the squared Euclidean distance."""

from collections.abc import Sequence

import numpy as np

QUERIES = 512  # queries at a time
KEYS = 2**12  # keys at a time, whose distances to the queries take 8 MiB


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
    queries, origin = np.asarray(queries, "float32"), np.float32(0)
    for keys, _ in shards[:1]:
        if keys.shape[1] != queries.shape[1]:
            raise ValueError(
                f"The memory has keys of dimension {keys.shape[1]}: it belongs to another model. Received: queries of "
                f"dimension {queries.shape[1]}."
            )
        origin = np.mean(keys[:KEYS], axis=0, dtype="float32")  # far from it, squares would lose digits
    blocks = [
        _Neighbors(queries[start : start + QUERIES] - origin, number) for start in range(0, len(queries), QUERIES)
    ]
    for keys, ids in shards:
        for start in range(0, len(ids), KEYS):
            part = np.asarray(keys[start : start + KEYS], "float32") - origin
            squares = np.sum(part * part, axis=1, keepdims=True)
            part = np.ascontiguousarray(np.concatenate([part, squares, np.ones_like(squares)], axis=1).T)
            for block in blocks:
                block.compare(part, ids[start : start + KEYS])
    distances, words = zip(*(block.found() for block in blocks))
    return np.concatenate(distances), np.concatenate(words)


class _Neighbors:
    """The nearest keys so far of some queries. Nearer keys wait until they are as many, and are then merged."""

    def __init__(self, queries, number):
        squares = np.sum(queries * queries, axis=1, keepdims=True)
        self.queries = np.concatenate([-2 * queries, np.ones_like(squares), squares], axis=1)
        self.distances = np.full((len(queries), number), np.inf, "float32")
        self.words = np.zeros(self.distances.shape, "int32")
        self.farthest = self.distances[:, :1]
        self.waiting, self.count = [], 0

    def compare(self, keys, ids):
        """Compares with keys: (dim + 2, keys), with their squares and ones, so that a product has the distances."""
        found = self.queries @ keys
        places = np.flatnonzero(found < self.farthest)  # few, after the first keys
        rows, columns = np.divmod(places, found.shape[1])
        self.waiting.append((rows, found.ravel()[places], ids[columns]))
        self.count += len(places)
        if self.count >= self.distances.size:
            self._merge()

    def found(self):
        """Returns the distances and words of the neighbors."""
        if self.count:
            self._merge()
        return np.maximum(self.distances, 0), self.words

    def _merge(self):
        rows, distances, ids = map(np.concatenate, zip(*self.waiting))
        self.waiting, self.count = [], 0
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        counts = np.bincount(rows, minlength=len(self.queries))
        places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        nearer = np.full((len(counts), counts.max()), np.inf, "float32")
        words = np.zeros(nearer.shape, "int32")
        nearer[rows, places], words[rows, places] = distances[order], ids[order]
        number = self.distances.shape[1]
        both = np.concatenate([self.distances, nearer], axis=1)
        kept = np.argpartition(both, number - 1, axis=1)[:, :number]
        self.distances = np.take_along_axis(both, kept, axis=1)
        self.words = np.take_along_axis(np.concatenate([self.words, words], axis=1), kept, axis=1)
        self.farthest = self.distances.max(axis=1, keepdims=True)
