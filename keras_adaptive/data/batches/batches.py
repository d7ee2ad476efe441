import itertools

import numpy as np

from keras_adaptive.data.batches.token_stream import as_stream


class Batches:
    """Base class of training batches: batch t is a function of (seed, t), so that a run resumes at any update.

    An epoch passes through all tokens once, in an order drawn from `np.random.default_rng((seed, epoch))`.
    Subclasses define the number of batches of an epoch (`__len__`), their order (`_order`) and what a batch
    holds (`_batch`). `tokens_per_epoch` is the number of tokens with weight 1 in an epoch.
    """

    def __init__(self, tokens, seed, shuffle):
        self.tokens = as_stream(tokens)
        self.seed = seed
        self.shuffle = shuffle
        self.tokens_per_epoch = len(self.tokens)
        self._last_order = (None, None)
        if seed < 0:
            raise ValueError(f"`seed` must not be negative. Received: {seed}")

    def batch(self, t):
        """Returns `(inputs, targets, weights)` of update t, counted from 0, each (rows, length)."""
        epoch, index = divmod(t, len(self))
        last, order = self._last_order
        if last != epoch:
            self._last_order = order = (None, None)  # two orders would need twice the memory
            order = self._order(np.random.default_rng((self.seed, epoch)))
            self._last_order = (epoch, order)
        return self._batch(order, index)

    def batches(self, start, stop=None):
        """Yields the batches of updates `start` to `stop`, endlessly if `stop` is None."""
        for update in itertools.count(start) if stop is None else range(start, stop):
            yield self.batch(update)

    def _permutation(self, rng, size):
        return rng.permutation(size) if self.shuffle else np.arange(size)
