import numpy as np
from numpy.typing import ArrayLike

from keras_adaptive.data.batches.batches import Batches
from keras_adaptive.data.batches.token_stream import cut
from keras_adaptive.special_words import UNK


class ItemBatches(Batches):
    """Batches of the last items of each user, in which every item but the first is a target.

    A row holds the last `length + 1` items of a user: inputs are all but the last one, targets all but the first one.
    Each user with at least two items is one row of an epoch. Every batch has the shape (batch_size, length). Rows are
    padded on the right, so that a model that reads from left to right sees no padding before an item, and needs no
    mask. The last batch of an epoch is filled with empty rows. Padding has weight 0, and so has `<unk>`
    as a target.

    Args:
        items: Ids of the items of all users, (clicks,).
        starts: First position of each user in `items`, (users,).
        stops: Position after the last one of each user, (users,).
        length: Number of inputs in a row.
        batch_size: Number of rows in a batch.
        seed: Integer that determines the order of the users, together with the epoch.
        shuffle: Whether the users are shuffled.

    Raises:
        ValueError: If no user has two items, or `length` or `batch_size` is below 1.

    Reference:
        Kang and McAuley, Self-Attentive Sequential Recommendation, ICDM 2018, section III (the last n actions).

    Example:

    >>> batches = ItemBatches(np.array([7, 8, 9, 5, 6]), [0, 3], [3, 5], length=3, batch_size=2, seed=1, shuffle=False)
    >>> inputs, targets, weights = batches.batch(0)
    >>> inputs.tolist(), targets.tolist()
    ([[7, 8, 1], [5, 1, 1]], [[8, 9, 1], [6, 1, 1]])
    """

    lengths_differ = False

    def __init__(
        self,
        items: np.ndarray,
        starts: ArrayLike,
        stops: ArrayLike,
        *,
        length: int,
        batch_size: int,
        seed: int,
        shuffle: bool = True,
    ) -> None:
        super().__init__(items, seed, shuffle)
        check_sizes(length=length, batch_size=batch_size)
        self.length = length
        self.batch_size = batch_size
        starts, stops = np.asarray(starts), np.asarray(stops)
        read = stops - starts >= 2
        if not read.any():
            raise ValueError("At least one user must have two items: the first is an input, the second its target.")
        self._stops = stops[read]
        self._starts = np.maximum(starts[read], self._stops - length - 1)
        known = np.append(0, np.cumsum(items != UNK))
        self.tokens_per_epoch = int((known[self._stops] - known[self._starts + 1]).sum())

    def __len__(self) -> int:
        return -(-len(self._stops) // self.batch_size)

    def _order(self, rng):
        return self._permutation(rng, len(self._stops))

    def _batch(self, order, index, part):
        users = order[index * self.batch_size :][: self.batch_size]
        empty = (0, self.batch_size - len(users))
        starts, stops = np.pad(self._starts[users], empty), np.pad(self._stops[users], empty)
        inputs, targets, weights = cut(self.tokens, starts + 1, stops, self.length, part)
        weights[targets == UNK] = 0.0
        return inputs, targets, weights


def check_sizes(**sizes: int) -> None:
    """Raises a ValueError if a size is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={size}.")
