from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from keras_adaptive.data.batches.token_stream import as_stream, cut, lines

STEP = 8  # lengths of windows are rounded up by at least this number of tokens


class ContextWindows:
    """Batches of evaluation windows: blocks of text to score, each with the preceding tokens as context.

    Every token of the stream has weight 1 in exactly one window. The windows are in the order of the text, so that
    `targets[weights > 0]` over all windows equals the stream, and the losses align with it. Context and padding have
    weight 0. A longer context lowers the perplexity, because it precedes the first tokens of each block.

    Block and context together hold at most `block + context` tokens. A line that is longer than `block` has a shorter
    context, without its earliest tokens. A line that is longer than both has no context.

    Args:
        tokens: Ids of a split, (tokens,).
        block: Number of tokens to score in a window.
        context: Number of tokens before the block. The first windows have fewer, since the text begins there.
        batch_size: Number of windows in a batch.
        by_lines: Whether a block consists of whole lines, as many as fit in `block` tokens. A longer line is a block of
            its own, so that with `block=1` each line is. Otherwise, a block has exactly `block` tokens.

    Yields:
        `(inputs, targets, weights)`, each (batch_size, length), of int32, int32 and float32. `length` is
        `context + block`, unless a line is longer or the whole text is shorter.

    Raises:
        ValueError: If `tokens` is empty, `block` or `batch_size` is below 1, or `context` is negative.

    Reference:
        Baevski and Auli, Adaptive Input Representations for Neural Language Modeling, ICLR 2019, section 5.3 (blocks
        of 512 with a context of 2,560), and the code published with it.

    Example:

    >>> windows = ContextWindows(np.array([7, 8, 2, 9, 2]), block=3, context=2)
    >>> [(targets.tolist(), weights.tolist()) for inputs, targets, weights in windows]
    [([[7, 8, 2, 1, 1]], [[1.0, 1.0, 1.0, 0.0, 0.0]]), ([[8, 2, 9, 2, 1]], [[0.0, 0.0, 1.0, 1.0, 0.0]])]
    """

    def __init__(
        self, tokens: ArrayLike, block: int, context: int, *, batch_size: int = 1, by_lines: bool = True
    ) -> None:
        if block < 1 or context < 0 or batch_size < 1:
            raise ValueError(
                "`block` and `batch_size` must be positive and `context` not negative. "
                f"Received: block={block}, context={context}, batch_size={batch_size}."
            )
        self.tokens = as_stream(tokens)
        if not len(self.tokens):
            raise ValueError("`tokens` must not be empty.")
        self.block = block
        self.context = context
        self.batch_size = batch_size
        self._stops = self._stops_by_lines() if by_lines else self._stops_by_tokens()
        self._begins = np.append(0, self._stops[:-1])

    @property
    def longest(self) -> int:
        """Number of tokens in the longest window, including its context and padding."""
        return self._length(int((self._stops - self._starts(self._begins, self._stops)).max()))

    def __len__(self) -> int:
        return -(-len(self._stops) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return map(self._batch, range(len(self)))

    def _batch(self, index):
        rows = slice(index * self.batch_size, (index + 1) * self.batch_size)
        begins, stops = self._begins[rows], self._stops[rows]
        missing = (0, self.batch_size - len(stops))  # empty rows fill the last batch
        begins, stops = np.pad(begins, missing), np.pad(stops, missing)
        starts = self._starts(begins, stops)
        length = self._length(int((stops - starts).max()))
        inputs, targets, weights = cut(self.tokens, starts, stops, length)
        weights[np.arange(length) < (begins - starts)[:, None]] = 0.0
        return inputs, targets, weights

    def _starts(self, begins, stops):
        """Returns where the contexts of blocks start."""
        context = np.clip(self.context + self.block - (stops - begins), 0, self.context)
        return np.maximum(begins - context, 0)

    def _length(self, needed):
        """Rounds a length up to one of a few lengths, because compiled backends compile once per length."""
        usual = min(self.context + self.block, -(-len(self.tokens) // STEP) * STEP)
        step = max(self.block, STEP)
        return usual + max(0, -(-(needed - usual) // step)) * step

    def _stops_by_tokens(self):
        return np.append(np.arange(self.block, len(self.tokens), self.block), len(self.tokens))

    def _stops_by_lines(self):
        ends = np.concatenate([stops for _, stops in lines(self.tokens)])
        stops, line, start = [], 0, 0
        while line < len(ends):
            line = max(line + 1, np.searchsorted(ends, start + self.block, side="right"))
            start = ends[line - 1]
            stops.append(start)
        return np.array(stops)
