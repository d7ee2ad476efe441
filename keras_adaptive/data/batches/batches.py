import itertools

import numpy as np

from keras_adaptive.data.batches.token_stream import as_stream


class Batches:
    """Base class of training batches: batch t is a function of (seed, t), so that a run resumes at any update.

    An epoch passes through all tokens once, in an order drawn from `np.random.default_rng((seed, epoch))`.
    Subclasses define the number of batches of an epoch (`__len__`), their order (`_order`) and what a batch
    holds (`_batch`). `tokens_per_epoch` is the number of tokens with weight 1 in an epoch.

    Attributes:
        lengths_differ: Whether batches have several lengths.
        stream_rows: Number of streams if row r of a batch continues row r of the batch before, otherwise None.
    """

    lengths_differ = True
    stream_rows = None

    def __init__(self, tokens, seed, shuffle):
        self.tokens = as_stream(tokens)
        self.seed = seed
        self.shuffle = shuffle
        self.tokens_per_epoch = len(self.tokens)
        self._last_order = (None, None)
        if seed < 0:
            raise ValueError(f"`seed` must not be negative. Received: {seed}")

    def batch(self, t):
        """Returns `(inputs, targets, weights)` of update t, counted from 0, each (rows, length).

        In batches of streams, `inputs` is `(inputs, begins)`: `begins` (rows,) marks the rows that begin a new text.
        """
        return self._batch(*self._place(t))

    def rate_factor(self, t):
        """Returns the factor of the learning rate of update t."""
        return 1.0

    def _place(self, t):
        """Returns the order of the epoch of update t, and the number of its batch in the epoch."""
        epoch, index = divmod(t, len(self))
        last, order = self._last_order
        if last != epoch:
            self._last_order = order = (None, None)  # two orders would need twice the memory
            order = self._order(np.random.default_rng((self.seed, epoch)))
            self._last_order = (epoch, order)
        return order, index

    def batches(self, start, stop=None):
        """Yields the batches of updates `start` to `stop`, endlessly if `stop` is None."""
        for update in itertools.count(start) if stop is None else range(start, stop):
            yield self.batch(update)

    def _permutation(self, rng, size):
        return rng.permutation(size) if self.shuffle else np.arange(size)
