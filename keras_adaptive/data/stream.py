"""A corpus as one stream of tokens, in which the input of every position is the token before it."""

import numpy as np

from keras_adaptive.data.vocabulary import EOS, PAD

_CHUNK = 1 << 24


def line_ends(tokens):
    """Returns where each line ends: after its `</s>`, or where the stream does."""
    chunks = ((start, tokens[start : start + _CHUNK]) for start in range(0, len(tokens), _CHUNK))
    ends = np.concatenate([start + 1 + np.flatnonzero(chunk == EOS) for start, chunk in chunks])
    return ends if len(ends) and ends[-1] == len(tokens) else np.append(ends, len(tokens))


def cut(tokens, starts, stops, length):
    """Cuts rows out of the stream: row i holds tokens `starts[i]` to `stops[i]`, padded to `length`.

    Returns (inputs, targets, weights), each (rows, length), int32, int32 and float32. Inputs are targets
    shifted right by one over the stream: the first input of a row is the token before its first target, and
    the stream begins after a `</s>`. Weights are 1 on tokens and 0 on padding.
    """
    positions = np.asarray(starts)[:, None] + np.arange(-1, length)  # (rows, length + 1)
    ids = tokens[positions.clip(0, len(tokens) - 1)].astype(np.int32)
    ids[positions < 0] = EOS
    inside = positions[:, 1:] < np.asarray(stops)[:, None]
    inputs = np.where(inside, ids[:, :-1], np.int32(PAD))
    targets = np.where(inside, ids[:, 1:], np.int32(PAD))
    return inputs, targets, inside.astype(np.float32)
