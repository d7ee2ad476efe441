"""Rows and lines of a stream of tokens. The input at every position is the preceding token."""

import numpy as np

from keras_adaptive.data.sharded_tokens import ShardedTokens
from keras_adaptive.special_words import EOS, PAD

_CHUNK = 1 << 22  # tokens in memory at a time


def as_stream(tokens):
    """Returns tokens as an array. Tokens in several files stay on disk."""
    return tokens if isinstance(tokens, ShardedTokens) else np.asarray(tokens)


def lines(tokens):
    """Yields the starts and stops of some lines at a time, two int64 arrays.

    A line ends after its `</s>`. The last line ends where the stream ends.
    """
    start = 0
    for begin in range(0, len(tokens), _CHUNK):
        stops = begin + 1 + np.flatnonzero(tokens[begin : begin + _CHUNK] == EOS)
        if begin + _CHUNK >= len(tokens) and (not len(stops) or stops[-1] < len(tokens)):
            stops = np.append(stops, len(tokens))
        if len(stops):
            yield np.append(start, stops[:-1]), stops
            start = stops[-1]


def stream_bounds(size, count):
    """Returns the positions where `count` streams begin in a text of `size` tokens, followed by the end of the last.

    The streams are consecutive, and their lengths differ by at most one token.
    """
    if not 1 <= count <= size:
        raise ValueError(
            f"The number of streams, `batch_size`, must be from 1 to the number of tokens ({size}). "
            f"Received: batch_size={count}. Use fewer streams or a larger text."
        )
    return np.arange(count + 1) * size // count


def part_of(rows, part):
    """Returns part i of n equal parts of rows (`part` is (i, n)), the last of which are filled with zeros."""
    size = -(-len(rows) // part[1])
    return np.pad(rows, (0, size * part[1] - len(rows)))[part[0] * size :][:size]


def cut(tokens, starts, stops, length, part=(0, 1)):
    """Cuts rows out of the stream: row i holds tokens `starts[i]` to `stops[i]`, padded to `length`.

    With `part` (i, n), these are the rows of part i of n equal parts, the last of which are filled with empty rows.

    Returns inputs, targets and weights (rows, length), int32, int32 and float32. The inputs are the targets, shifted
    right by one token over the stream: the first input of a row is the token before its first target, and the stream
    begins after a `</s>`. Weights are 1 for tokens and 0 for padding.
    """
    starts, stops = part_of(starts, part), part_of(stops, part)
    positions = np.asarray(starts)[:, None] + np.arange(-1, length)  # (rows, length + 1)
    ids = tokens[positions.clip(0, len(tokens) - 1)].astype(np.int32)
    ids[positions < 0] = EOS
    inside = positions[:, 1:] < np.asarray(stops)[:, None]
    inputs = np.where(inside, ids[:, :-1], np.int32(PAD))
    targets = np.where(inside, ids[:, 1:], np.int32(PAD))
    return inputs, targets, inside.astype(np.float32)
