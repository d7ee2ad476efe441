from typing import Any

import numpy as np


class ShardedTokens:
    """Concatenates arrays of tokens, such as memory-mapped files, without reading them.

    The object has the length, the type and the elements of the concatenation. It is indexed like a NumPy array by
    integers, slices and arrays of integers. A slice inside one shard is a view; every other result is a copy.
    `np.asarray` reads all tokens.

    Args:
        shards: List of arrays with one axis and a common type. Some may be empty.

    Raises:
        ValueError: If the types of the shards differ.

    Example:

    >>> tokens = ShardedTokens([np.array([7, 8, 2]), np.array([9, 2])])
    >>> len(tokens), tokens[1:4].tolist(), tokens[[-1, 0]].tolist()
    (5, [8, 2, 9], [2, 7])
    """

    def __init__(self, shards: list[np.ndarray]) -> None:
        self.shards = list(shards)
        self.dtype = self.shards[0].dtype
        self._stops = np.cumsum([len(shard) for shard in self.shards])
        self._starts = self._stops - [len(shard) for shard in self.shards]
        self.shape = (int(self._stops[-1]),)
        dtypes = [str(shard.dtype) for shard in self.shards]
        if len(set(dtypes)) > 1:
            raise ValueError(f"`shards` must have one dtype. Received: dtypes={dtypes}.")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._elements(np.asarray(index))
        start, stop, step = index.indices(len(self))
        if step != 1:
            return self._elements(np.arange(start, stop, step))
        first, last = np.searchsorted(self._stops, [start, max(start, stop - 1)], side="right")
        places = range(first, min(last + 1, len(self.shards)))
        pieces = [self.shards[i][max(start - self._starts[i], 0) : max(stop - self._starts[i], 0)] for i in places]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [np.empty(0, self.dtype)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("Tokens of several shards become one array only by copying.")
        return self[:].astype(dtype or self.dtype, copy=False)

    def _elements(self, index):
        if index.dtype.kind not in "iu":
            raise IndexError(f"indices must be integers or slices. Received: dtype={index.dtype}.")
        outside = (index < -len(self)) | (index >= len(self))
        if outside.any():
            raise IndexError(f"index {index[outside].flat[0]} is out of bounds for {len(self)} tokens")
        index = np.where(index < 0, index + len(self), index)
        shard = np.searchsorted(self._stops, index, side="right")
        elements = np.empty(index.shape, self.dtype)
        for i in np.unique(shard):
            inside = shard == i
            elements[inside] = self.shards[i][index[inside] - self._starts[i]]
        return elements[()]
