import numpy as np

from keras_adaptive.data.batches import Batches
from keras_adaptive.data.stream import cut, line_ends


class SentenceBatches(Batches):
    """Batches of single sentences of about the same length, for text whose lines do not belong together.

    A sentence ends with `</s>` and its first input is the `</s>` before it. Sentences are padded to one of a
    few lengths (8, 12, 16, 24, 32, 48, …, `max_length`), and a batch holds sentences of one of these, as many
    as `tokens_per_batch` allows: compiled backends see one shape per length. Padding has weight 0. The same
    sentences meet in another order, and in other company, every epoch.

    Args:
        tokens: ids of a split, `(tokens,)`.
        tokens_per_batch: largest number of tokens, padding included, in a batch.
        seed: decides the batches, together with the epoch.
        max_length: longer sentences are cut into pieces of at most so many tokens.
        rows_multiple: the number of rows is a multiple of this, so that so many devices can share a batch.
        shuffle: False keeps sentences of one length in the order of the text, short ones first.

    Raises:
        ValueError: if there is no token, or `tokens_per_batch` does not hold `rows_multiple` rows of
            `max_length`.

    Example:

    >>> batches = SentenceBatches(np.array([7, 8, 2, 9, 2]), tokens_per_batch=16, seed=1, max_length=8)
    >>> inputs, targets, weights = batches.batch(0)
    >>> inputs.shape, float(weights.sum())
    ((2, 8), 5.0)
    """

    def __init__(self, tokens, tokens_per_batch, seed, max_length=256, rows_multiple=1, shuffle=True):
        super().__init__(tokens, seed, shuffle)
        self.tokens_per_batch = tokens_per_batch
        self.max_length = max_length
        self.rows_multiple = rows_multiple
        self._validate()
        self._sort_into_buckets()

    def __len__(self):
        return int(self._batches.sum())

    def _validate(self):
        if not len(self.tokens):
            raise ValueError("`tokens` must not be empty.")
        if self.max_length < 1 or self.rows_multiple < 1:
            raise ValueError(
                "`max_length` and `rows_multiple` must be positive. "
                f"Received: max_length={self.max_length}, rows_multiple={self.rows_multiple}"
            )
        if self.tokens_per_batch < self.max_length * self.rows_multiple:
            raise ValueError(
                f"`tokens_per_batch` must be at least `max_length` x `rows_multiple` "
                f"({self.max_length} x {self.rows_multiple}). Received: {self.tokens_per_batch}. "
                "Raise it, or lower `max_length`."
            )

    def _sort_into_buckets(self):
        starts, stops = _pieces(self.tokens, self.max_length)
        lengths = _lengths(self.max_length)
        buckets = np.searchsorted(lengths, stops - starts).astype(np.int8)
        by_bucket = np.argsort(buckets, kind="stable")
        self._starts, self._stops = starts[by_bucket], stops[by_bucket]
        used, self._sizes = np.unique(buckets, return_counts=True)
        self._lengths = lengths[used]
        self._rows = self.tokens_per_batch // self._lengths // self.rows_multiple * self.rows_multiple
        self._batches = -(-self._sizes // self._rows)

    def _order(self, rng):
        """Returns the order of the batches, and the sentences, shuffled inside each bucket."""
        first = np.cumsum(self._sizes) - self._sizes
        buckets = zip(first, self._sizes, strict=True)
        sentences = np.concatenate([start + self._permutation(rng, size) for start, size in buckets])
        return self._permutation(rng, len(self)), sentences

    def _batch(self, order, index):
        batches, sentences = order
        last = np.cumsum(self._batches)
        bucket = np.searchsorted(last, batches[index], side="right")
        row = (batches[index] - (last - self._batches)[bucket]) * self._rows[bucket]
        bucket_stop = np.cumsum(self._sizes)[bucket]
        begin = bucket_stop - self._sizes[bucket] + row
        chosen = sentences[begin : min(begin + self._rows[bucket], bucket_stop)]
        starts, stops = np.zeros((2, self._rows[bucket]), np.int64)  # rows without a sentence stay empty
        starts[: len(chosen)], stops[: len(chosen)] = self._starts[chosen], self._stops[chosen]
        return cut(self.tokens, starts, stops, self._lengths[bucket])


def _lengths(max_length):
    """8, 12, 16, 24, …, `max_length`: padding is at most a third of a row of more than 8 tokens."""
    powers = 2 ** np.arange(3, 32)
    lengths = np.ravel([powers, powers * 3 // 2], order="F")
    return np.append(lengths[lengths < max_length], max_length)


def _pieces(tokens, max_length):
    """Returns where the sentences start and stop, those longer than `max_length` cut."""
    stops = line_ends(tokens)
    starts = np.append(0, stops[:-1])
    pieces = -(-(stops - starts) // max_length)
    within = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(starts, pieces) + within * max_length
    return starts, np.minimum(starts + max_length, np.repeat(stops, pieces))
