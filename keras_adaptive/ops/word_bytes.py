"""Words as bytes, and what convolutions and highway layers make of them."""

import numpy as np
from keras import ops


def encode_words(words, max_bytes):
    """The UTF-8 bytes of words, each + 1, cut at `max_bytes` and filled up with 0: (words, max_bytes) uint16.

    Raises:
        ValueError: on an empty word.
    """
    encoded = [word.encode()[:max_bytes] for word in words]
    if not all(encoded):
        raise ValueError(f"`words` must not hold an empty word: leave it out. Received one at {encoded.index(b'')}.")
    characters = np.zeros((len(encoded), max_bytes), np.uint16)
    for row, word in zip(characters, encoded):
        row[: len(word)] = np.frombuffer(word, np.uint8)
        row[: len(word)] += 1
    return characters


def convolve_bytes(characters, table, *weights, max_bytes):
    """relu(max over time(convolution)) of every width, side by side: (words, slots) ids to (words, all filters).

    The value is that of `max_bytes` slots, whatever the number of slots given: windows that see padding alone have
    the value of the bias, since padding is a vector of zeros, and one of them stands for all.

    Args:
        characters: int (words, slots), 0 is padding, which the words of fewer bytes end with. `slots` is `max_bytes`,
            or small enough that every width has a window of padding alone.
        table: (257, char_dim) one vector per byte; that of padding is taken for zeros.
        weights: kernels (width, char_dim, filters) of widths 1, 2, … and as many biases (filters,).
        max_bytes: slots of a word.
    """
    kernels, biases = weights[: len(weights) // 2], weights[len(weights) // 2 :]
    slots, widest = characters.shape[1], len(kernels)
    shorter = slots < max_bytes
    vectors = ops.take(table, characters, axis=0) * ops.cast(characters > 0, table.dtype)[..., None]
    vectors = ops.pad(vectors, [[0, 0], [0, widest - 1], [0, 0]])
    windows = ops.concatenate([vectors[:, start : start + slots] for start in range(widest)], axis=-1)
    results = []
    for kernel, bias in zip(kernels, biases):
        width, dim, filters = kernel.shape
        starts = slots if shorter else slots - width + 1
        seen = ops.reshape(windows[:, :starts, : width * dim], [-1, width * dim])
        values = ops.reshape(ops.matmul(seen, ops.reshape(kernel, [width * dim, filters])), [-1, starts, filters])
        highest = ops.max(values, axis=1)
        results.append(ops.relu((ops.maximum(highest, 0.0) if shorter else highest) + bias))
    return ops.concatenate(results, axis=-1)


def highway(x, kernel, bias):
    """σ(g)·x + (1 − σ(g))·relu(a) with [a ; g] = x·kernel + bias: (rows, dim) to (rows, dim), kernel (dim, 2·dim).

    Srivastava et al. 2015, with the two linear layers side by side.
    """
    dim = x.shape[-1]
    both = ops.matmul(x, kernel) + bias
    gate = ops.sigmoid(both[:, dim:])
    return gate * x + (1 - gate) * ops.relu(both[:, :dim])
