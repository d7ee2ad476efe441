import numpy as np


class ShardedTokens:
    """Concatenation of arrays of tokens, such as memory-mapped files, that reads as one array.

    It has the length, the type and the elements of the concatenation. It is indexed as an array of NumPy, by integers,
    slices and arrays of integers. A slice inside one shard is a view, everything else a copy. `np.asarray` reads all.

    Args:
        shards: List of arrays of one dimension and one type; some may be empty.

    Example:

    >>> tokens = ShardedTokens([np.array([7, 8, 2]), np.array([9, 2])])
    >>> len(tokens), tokens[1:4].tolist(), tokens[[-1, 0]].tolist()
    (5, [8, 2, 9], [2, 7])
    """

    def __init__(self, shards):
        self.shards = list(shards)
        self.dtype = self.shards[0].dtype
        self._stops = np.cumsum([len(shard) for shard in self.shards])
        self._starts = self._stops - [len(shard) for shard in self.shards]
        self.shape = (int(self._stops[-1]),)
        if any(shard.dtype != self.dtype for shard in self.shards):
            raise ValueError(f"`shards` must have one type. Received: {[str(shard.dtype) for shard in self.shards]}")

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        if not isinstance(index, slice):
            return self._elements(np.asarray(index))
        start, stop, step = index.indices(len(self))
        if step != 1:
            return self._elements(np.arange(start, stop, step))
        first, last = np.searchsorted(self._stops, [start, max(start, stop - 1)], side="right")
        places = range(first, min(last + 1, len(self.shards)))
        pieces = [self.shards[i][max(start - self._starts[i], 0) : max(stop - self._starts[i], 0)] for i in places]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [np.empty(0, self.dtype)])

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("Tokens of several shards become one array only by copying.")
        return self[:].astype(dtype or self.dtype, copy=False)

    def _elements(self, index):
        if index.dtype.kind not in "iu":
            raise IndexError(f"indices must be integers or slices. Received: {index.dtype}")
        outside = (index < -len(self)) | (index >= len(self))
        if outside.any():
            raise IndexError(f"index {index[outside].flat[0]} is out of bounds for {len(self)} tokens")
        index = np.where(index < 0, index + len(self), index)
        shard = np.searchsorted(self._stops, index, side="right")
        elements = np.empty(index.shape, self.dtype)
        for i in np.unique(shard):
            here = shard == i
            elements[here] = self.shards[i][index[here] - self._starts[i]]
        return elements[()]
