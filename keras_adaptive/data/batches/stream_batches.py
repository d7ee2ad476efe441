import numpy as np
from numpy.typing import ArrayLike

from keras_adaptive.data.batches.batches import Batches
from keras_adaptive.data.batches.token_stream import cut, part_of, stream_bounds

LEAST = 5  # number of tokens in the shortest random batch
SPREAD = 9  # -9, 0 and 9 with these weights have mean 0 and, up to rounding, a standard deviation of 5 tokens
WEIGHTS = (1 / 6, 2 / 3, 1 / 6)
HALVED = 0.05  # share of the batches with half the length


class StreamBatches(Batches):
    """Batches of contiguous streams for truncated back-propagation through time, where the body carries its state.

    The text is cut into `batch_size` streams, whose lengths differ by at most one token. Row r of a batch continues
    stream r where the previous batch ended. The first batch of an epoch begins all streams. A batch takes about `bptt`
    tokens of every stream, or half as many with probability 0.05. The number varies by up to 9 tokens, so that every
    epoch cuts the gradients at other positions. Multiply the learning rate of update t by `rate_factor(t)`, the length
    of its batch divided by `bptt`.

    With a `reset_rate`, as in Melis et al. 2018, some rows begin from the initial state although the text goes on. An
    LSTM without penalties on its activations may otherwise learn states that only thousands of tokens lead to, and
    predict the beginning of another text badly.

    Four things differ from the code published with AWD-LSTM:

    - It draws max(5, N(base, 5)) tokens, where `base` is `bptt` or its half. Here, the normal distribution is replaced
      by -9, 0 or 9 with probabilities 1/6, 2/3 and 1/6, which have the same mean and nearly the same variance. Compiled
      backends then see six lengths, and a seventh for the rest of the text.
    - The lengths of an epoch are drawn once, and every epoch takes them in another order, so that all epochs have the
      same number of batches.
    - The rate of the last batch of an epoch follows its actual length, not the length that was drawn.
    - Every token is used. That code drops up to `batch_size` - 1 tokens at the end of the text.

    Args:
        tokens: Ids of a split, (tokens,).
        bptt: Mean number of tokens of a stream in a batch, at least 5.
        batch_size: Number of streams.
        seed: Integer that determines the lengths and, together with the epoch, their order.
        shuffle: Whether the lengths vary. False takes `bptt` tokens at a time, for validation.
        reset_rate: Probability that a row of a batch begins from the initial state, from 0 to below 1.

    Raises:
        ValueError: If `bptt` is below 5, `reset_rate` is outside its range, or there are more streams than tokens.

    Reference:
        Merity, Keskar and Socher, Regularizing and Optimizing LSTM Language Models, ICLR 2018, section 5 (lengths of
        batches), and the code published with it; Melis, Dyer and Blunsom, On the State of the Art of Evaluation in
        Neural Language Models, ICLR 2018, and the code published with it (resets).

    Example:

    >>> batches = StreamBatches(np.arange(10, 30), bptt=5, batch_size=2, seed=1, shuffle=False)
    >>> (inputs, begins), targets, weights = batches.batch(0)
    >>> inputs.tolist(), begins.tolist()
    ([[2, 10, 11, 12, 13], [19, 20, 21, 22, 23]], [True, True])
    >>> (inputs, begins), targets, weights = batches.batch(1)
    >>> inputs.tolist(), begins.tolist()
    ([[14, 15, 16, 17, 18], [24, 25, 26, 27, 28]], [False, False])
    """

    def __init__(
        self,
        tokens: ArrayLike,
        bptt: int,
        batch_size: int,
        *,
        seed: int,
        shuffle: bool = True,
        reset_rate: float = 0.0,
    ) -> None:
        super().__init__(tokens, seed, shuffle)
        if not 0 <= reset_rate < 1:
            raise ValueError(f"`reset_rate` must be at least 0 and below 1. Received: reset_rate={reset_rate}.")
        if bptt < LEAST:
            raise ValueError(f"`bptt` must be at least {LEAST} tokens. Received: bptt={bptt}. Use longer batches.")
        self.bptt = bptt
        self.batch_size = batch_size
        self.reset_rate = reset_rate
        self._bounds = stream_bounds(len(self.tokens), batch_size)
        self._lengths = self._draw_lengths(np.diff(self._bounds).max())

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def stream_rows(self) -> int:
        return self.batch_size

    def rate_factor(self, t: int) -> float:
        (places, _), index = self._place(t)
        return float(places[index + 1] - places[index]) / self.bptt

    def _draw_lengths(self, steps):
        """Returns the lengths of the batches in an epoch, which add up to `steps`."""
        count = -(-steps // LEAST)  # upper bound of the number of batches
        lengths = np.full(count, self.bptt)
        if self.shuffle:
            rng = np.random.default_rng((self.seed, 0, 1))
            base = np.where(rng.random(count) < HALVED, self.bptt / 2, self.bptt)
            lengths = np.maximum(base + SPREAD * rng.choice([-1, 0, 1], count, p=WEIGHTS), LEAST).astype(np.int64)
        stops = np.cumsum(lengths)
        used = np.searchsorted(stops, steps) + 1
        return np.diff(np.minimum(stops[:used], steps), prepend=0)

    def _order(self, rng):
        """Returns the positions in the streams where each batch begins, followed by the position where the last ends,
        and the seed of the resets.

        The last batch is the rest of the text in every epoch.
        """
        order = np.append(self._permutation(rng, len(self) - 1), len(self) - 1)
        return np.append(0, np.cumsum(self._lengths[order])), rng.integers(2**63)

    def _batch(self, order, index, part):
        places, seed = order
        starts = self._bounds[:-1] + places[index]
        length = places[index + 1] - places[index]
        stops = np.minimum(starts + length, self._bounds[1:])
        inputs, targets, weights = cut(self.tokens, starts, stops, length, part)
        return (inputs, part_of(self._begins(seed, index), part)), targets, weights

    def _begins(self, seed, index):
        """Returns which streams begin a batch from the initial state: all in the first, some in the others."""
        if index == 0 or not self.reset_rate:
            return np.full(self.batch_size, index == 0)
        return np.random.default_rng((seed, index)).random(self.batch_size) < self.reset_rate
