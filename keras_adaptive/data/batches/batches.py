import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from keras_adaptive.data.batches.token_stream import as_stream


class Batches:
    """Base class of training batches. Batch t is a function of (seed, t), so that training resumes at any update.

    An epoch passes through all tokens once, in an order drawn from `np.random.default_rng((seed, epoch))`. Subclasses
    define the number of batches in an epoch (`__len__`), their order (`_order`) and their contents (`_batch`).

    Args:
        tokens: Ids of a split, (tokens,).
        seed: Integer of at least 0.
        shuffle: Whether every epoch has another order.

    Attributes:
        lengths_differ: Whether batches have several lengths.
        stream_rows: Number of streams if row r of a batch continues row r of the previous batch, otherwise None.
        stage_ends: Numbers of updates after which batches have other lengths, in ascending order.
        tokens_per_epoch: Number of tokens with weight 1 in an epoch.
    """

    lengths_differ = True
    stream_rows = None
    stage_ends: tuple[int, ...] = ()
    _batch: Callable[..., tuple]  # of the subclass

    def __init__(self, tokens: ArrayLike, seed: int, shuffle: bool) -> None:
        self.tokens = as_stream(tokens)
        self.seed = seed
        self.shuffle = shuffle
        self.tokens_per_epoch = len(self.tokens)
        self._last_order = (None, None)
        if seed < 0:
            raise ValueError(f"`seed` must not be negative. Received: seed={seed}.")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must implement `__len__`.")

    def batch(self, t: int, part: tuple[int, int] = (0, 1)) -> tuple:
        """Returns the batch of update t, counted from 0: `(inputs, targets, weights)`, each (rows, length).

        In batches of streams, `inputs` is `(inputs, begins)`: `begins` (rows,) marks the rows that begin a new text.
        With `part=(i, n)`, only part i of n equal parts of the rows is read. Rows of weight 0 fill the last parts.
        """
        return self._batch(*self._place(t), part)

    def rate_factor(self, t: int) -> float:
        """Returns the factor of the learning rate of update t."""
        return 1.0

    def _place(self, t):
        """Returns the order of the epoch of update t, and the number of its batch in the epoch."""
        epoch, index = divmod(t, len(self))
        last, order = self._last_order
        if last != epoch:
            self._last_order = order = (None, None)  # frees the old order first, to save memory
            order = self._order(np.random.default_rng((self.seed, epoch)))
            self._last_order = (epoch, order)
        return order, index

    def batches(self, start: int, stop: int | None = None) -> Iterator[tuple]:
        """Yields the batches of updates `start` to `stop - 1`, or without end if `stop` is None."""
        for update in itertools.count(start) if stop is None else range(start, stop):
            yield self.batch(update)

    def _permutation(self, rng, size):
        return rng.permutation(size) if self.shuffle else np.arange(size)
