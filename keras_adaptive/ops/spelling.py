"""Words spelled one symbol at a time, and an LSTM that predicts the next symbol."""

from typing import NamedTuple

import numpy as np
from keras import ops

from keras_adaptive.ops.recurrence import lstm
from keras_adaptive.ops.word_bytes import encode_words

BYTES, SPECIAL = 256, 4
SYMBOLS = BYTES + 1 + SPECIAL  # bytes, the end of a word, and the special words at the beginning of every vocabulary


def spell(words, max_bytes):
    """Returns the symbols of words, each + 1, padded with 0: int16 (words, longest).

    The symbols of a word are its UTF-8 bytes and 256, the end. A special word, with which `words` begin, is a single
    symbol of at least 257. An empty word, or one of more than `max_bytes`, raises a ValueError.
    """
    spelled = words[SPECIAL:]
    lengths = np.array([len(word.encode()) for word in spelled], int)
    longest = lengths.max(initial=0)
    if longest > max_bytes:
        word = spelled[lengths.argmax()]
        raise ValueError(
            f"`max_bytes` must be at least {longest}, the number of bytes of {word[:80]!r}: pass more, or make a "
            f"vocabulary without such words. Received: max_bytes={max_bytes}."
        )
    symbols = np.zeros((len(words), longest + 1), np.int16)
    symbols[:SPECIAL, 0] = np.arange(BYTES + 2, SYMBOLS + 1)
    symbols[SPECIAL:, :longest] = encode_words(spelled, longest)
    symbols[np.arange(SPECIAL, len(words)), lengths] = BYTES + 1
    return symbols


class Prefixes(NamedTuple):
    """Prefixes of one length of all spellings, for one step of `vocabulary_log_probs`.

    A pair of a prefix and the next symbol is the number prefix · SYMBOLS + symbol.
    """

    ends: np.ndarray  # the pairs that end a word
    branches: np.ndarray  # the other pairs, which are the prefixes of the next length


def prefix_tree(symbols):
    """Returns the tree of the result of `spell`: a list of `Prefixes`, and each word's place among all their ends."""
    levels, ended, alive = [], [], np.arange(len(symbols))
    prefix = np.zeros(len(symbols), np.int64)  # the place of each word's prefix among the prefixes of one length
    for column in symbols.T:
        pairs, ends = prefix[alive] * SYMBOLS + column[alive] - 1, column[alive] > BYTES
        branches, prefix[alive[~ends]] = np.unique(pairs[~ends], return_inverse=True)
        levels.append(Prefixes(pairs[ends], branches))
        ended.append(alive[ends])
        alive = alive[~ends]
        if not len(alive):
            break
    return levels, np.argsort(np.concatenate(ended))


def spelling_nll(x, symbols, *weights, slots):
    """Computes −log p(spelling) of words, one spelling per row.

    At every step the LSTM reads the hidden state of the row and the vector of the previous symbol. The first step reads
    row 0 of the table.

    Args:
        x: Float tensor (rows, dim), the hidden states.
        symbols: Int tensor (rows, number of at least `slots`), the symbols + 1, padded with 0.
        weights: Float32 tensor (257, char_dim), the vectors of the symbols; then, in the dtype of `x`, the kernel
            (dim + char_dim, 4·units), the recurrent kernel (units, 4·units) and the bias (4·units,) of an LSTM, and the
            kernel (units, SYMBOLS) and bias (SYMBOLS,) of the logits.
        slots: Number of symbols that are read.

    Returns:
        (rows, 1) float32, in nats.
    """
    symbols = symbols[:, :slots]
    before = ops.pad(symbols[:, :-1], [[0, 0], [1, 0]])
    before = ops.where(before > BYTES, 0, before)  # the word has ended
    rows, units = ops.shape(x)[0], weights[2].shape[0]
    zeros = ops.zeros((rows, units), "float32")
    log_probs, _ = _predict(_context(x, *weights), before, (zeros, zeros), *weights)
    picked = ops.take_along_axis(log_probs, ops.maximum(symbols - 1, 0)[..., None], axis=-1)[..., 0]
    return -ops.sum(ops.where(symbols > 0, picked, 0.0), axis=1, keepdims=True)


def vocabulary_log_probs(x, *weights, tree):
    """Computes the log-probability of the spelling of every word of a `prefix_tree`: (rows, words) float32.

    It takes one LSTM step per distinct prefix. The other arguments are those of `spelling_nll`.
    """
    levels, places = tree
    rows, units = ops.shape(x)[0], weights[2].shape[0]
    parents, before, context = np.zeros(1, "int32"), np.zeros(1, "int32"), _context(x, *weights)
    state, total, complete = [ops.zeros((rows, 1, units), "float32")] * 2, ops.zeros((rows, 1), "float32"), []
    for ends, branches in levels:
        count = len(parents)
        flat = [ops.reshape(ops.take(part, parents, axis=1), (-1, units)) for part in state]
        symbols = ops.reshape(ops.broadcast_to(before, (rows, count)), (-1, 1))
        log_probs, state = _predict(ops.repeat(context, count, axis=0), symbols, flat, *weights)
        state = [ops.reshape(part, (rows, count, units)) for part in state]
        pairs = ops.reshape(total[..., None] + ops.reshape(log_probs, (rows, count, SYMBOLS)), (rows, count * SYMBOLS))
        complete.append(ops.take(pairs, ends.astype("int32"), axis=1))
        total = ops.take(pairs, branches.astype("int32"), axis=1)
        parents, before = (branches // SYMBOLS).astype("int32"), (branches % SYMBOLS + 1).astype("int32")
    return ops.take(ops.concatenate(complete, axis=1), places.astype("int32"), axis=1)


def _context(x, table, kernel, recurrent_kernel, bias, *of_logits):
    """Returns the contribution of the hidden states to the gates, the same at every step: (rows, 4·units)."""
    return ops.matmul(x, kernel[: x.shape[-1]]) + bias


def _predict(context, before, state, table, kernel, recurrent_kernel, bias, logits_kernel, logits_bias):
    """Returns the log-probabilities (rows, steps, SYMBOLS) float32, and the state of the LSTM after the steps."""
    vectors, of_vectors = ops.cast(ops.take(table, before, axis=0), context.dtype), kernel[-table.shape[1] :]
    y, *state = lstm(vectors, of_vectors, recurrent_kernel, context, *state)
    logits = ops.reshape(ops.matmul(ops.reshape(y, (-1, y.shape[-1])), logits_kernel), (*ops.shape(y)[:2], SYMBOLS))
    return ops.log_softmax(ops.cast(logits, "float32") + ops.cast(logits_bias, "float32")), state
