import numpy as np
from numpy.typing import ArrayLike

from keras_adaptive.data.batches.batches import Batches
from keras_adaptive.data.batches.token_stream import cut, lines


class SentenceBatches(Batches):
    """Batches of single sentences of similar length, for text whose lines are independent.

    A sentence ends with `</s>`. Its first input is the `</s>` before it. Sentences are padded to one of a few lengths
    (8, 12, 16, 24, 32, 48, …, `max_length`). A batch holds sentences of a single length, up to `tokens_per_batch`
    tokens, so that compiled backends see one shape per length. Padding has weight 0. Every epoch draws new batches in a
    new order.

    Args:
        tokens: Ids of a split, (tokens,).
        tokens_per_batch: Largest number of tokens in a batch, including padding.
        seed: Integer that determines the batches, together with the epoch.
        max_length: Largest number of tokens in a row; longer sentences are cut into pieces.
        shuffle: Whether the sentences are shuffled. False keeps sentences of one length in the order of the text, short
            lengths first.

    Raises:
        ValueError: If there are no tokens, or `tokens_per_batch` is less than `max_length`.

    Example:

    >>> batches = SentenceBatches(np.array([7, 8, 2, 9, 2]), tokens_per_batch=16, seed=1, max_length=8)
    >>> inputs, targets, weights = batches.batch(0)
    >>> inputs.shape, float(weights.sum())
    ((2, 8), 5.0)
    """

    def __init__(
        self, tokens: ArrayLike, tokens_per_batch: int, *, seed: int, max_length: int = 256, shuffle: bool = True
    ) -> None:
        super().__init__(tokens, seed, shuffle)
        self.tokens_per_batch = tokens_per_batch
        self.max_length = max_length
        self._validate()
        self._sort_into_buckets()

    def __len__(self) -> int:
        return int(self._batches.sum())

    def _validate(self):
        if not len(self.tokens):
            raise ValueError("`tokens` must not be empty.")
        if self.max_length < 1:
            raise ValueError(f"`max_length` must be positive. Received: max_length={self.max_length}.")
        if self.tokens_per_batch < self.max_length:
            raise ValueError(
                f"`tokens_per_batch` must be at least `max_length` ({self.max_length}). "
                f"Received: tokens_per_batch={self.tokens_per_batch}. Raise it, or lower `max_length`."
            )

    def _sort_into_buckets(self):
        """Finds the start and the length of every sentence, sorted by bucket, in 6 bytes per sentence.

        The text is read twice. The first pass counts the sentences of each bucket, so that arrays are allocated once.
        """
        lengths = _lengths(self.max_length)
        sizes = sum(np.bincount(buckets, minlength=len(lengths)) for *_, buckets in self._sentences(lengths))
        total = sizes.sum()
        self._starts = np.empty(total, _smallest_type(len(self.tokens)))
        self._sentence_lengths = np.empty(total, _smallest_type(self.max_length))
        free = np.cumsum(sizes) - sizes
        for starts, stops, buckets in self._sentences(lengths):
            for bucket in np.unique(buckets):
                members = np.flatnonzero(buckets == bucket)
                place = slice(free[bucket], free[bucket] + len(members))
                self._starts[place] = starts[members]
                self._sentence_lengths[place] = (stops - starts)[members]
                free[bucket] += len(members)
        used = np.flatnonzero(sizes)
        self._sizes, self._lengths = sizes[used], lengths[used]
        self._rows = self.tokens_per_batch // self._lengths
        self._batches = -(-self._sizes // self._rows)

    def _sentences(self, lengths):
        """Yields the starts, stops and buckets of sentences. Sentences longer than `max_length` are cut into pieces."""
        for starts, stops in lines(self.tokens):
            starts, stops = _pieces(starts, stops, self.max_length)
            yield starts, stops, np.searchsorted(lengths, stops - starts)

    def _order(self, rng):
        """Returns the order of the batches, and of the sentences inside each bucket, in 4 bytes per sentence."""
        sentences = np.arange(len(self._starts), dtype=_smallest_type(len(self._starts)))
        if self.shuffle:
            for stop, size in zip(np.cumsum(self._sizes), self._sizes):
                rng.shuffle(sentences[stop - size : stop])
        return self._permutation(rng, len(self)), sentences

    def _batch(self, order, index, part):
        batches, sentences = order
        last = np.cumsum(self._batches)
        bucket = np.searchsorted(last, batches[index], side="right")
        row = (batches[index] - (last - self._batches)[bucket]) * self._rows[bucket]
        bucket_stop = np.cumsum(self._sizes)[bucket]
        begin = bucket_stop - self._sizes[bucket] + row
        chosen = sentences[begin : min(begin + self._rows[bucket], bucket_stop)]
        starts, stops = np.zeros((2, self._rows[bucket]), np.int64)  # the last rows of a bucket may be empty
        starts[: len(chosen)] = self._starts[chosen]
        stops[: len(chosen)] = starts[: len(chosen)] + self._sentence_lengths[chosen]
        return cut(self.tokens, starts, stops, self._lengths[bucket], part)


def _lengths(max_length):
    """Returns the lengths 8, 12, 16, 24, …, `max_length`. At most a third of a row above 8 tokens is padding."""
    powers = 2 ** np.arange(3, 32)
    lengths = np.ravel([powers, powers * 3 // 2], order="F")
    return np.append(lengths[lengths < max_length], max_length)


def _pieces(starts, stops, max_length):
    """Returns the starts and stops of pieces of sentences. Each piece has at most `max_length` tokens."""
    pieces = -(-(stops - starts) // max_length)
    within = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(starts, pieces) + within * max_length
    return starts, np.minimum(starts + max_length, np.repeat(stops, pieces))


def _smallest_type(largest):
    """Returns the unsigned type that holds numbers up to `largest` in the fewest bytes."""
    return np.min_scalar_type(int(largest))
