"""Words as bytes, and the convolutions and highway layers on them."""

import numpy as np
from keras import ops

BEGIN, END = 257, 258  # markers of a word, after the bytes, which are their values + 1


def encode_words(words, max_bytes):
    """Returns the UTF-8 bytes of words, each + 1, cut at `max_bytes` and padded with 0: int16 (words, max_bytes).

    Raises:
        ValueError: If a word is empty.
    """
    encoded = [word.encode()[:max_bytes] for word in words]
    if not all(encoded):
        raise ValueError(
            f"`words` must not contain an empty word: leave it out. Received: an empty word at {encoded.index(b'')}."
        )
    lengths = np.fromiter(map(len, encoded), int, len(encoded))
    characters = np.zeros((len(encoded), max_bytes), np.int16)
    characters[np.arange(max_bytes) < lengths[:, None]] = np.frombuffer(b"".join(encoded), np.uint8) + np.int16(1)
    return characters


def with_markers(characters):
    """Adds the markers `BEGIN` and `END` to the bytes of words: int ids (words, n) to int32 (words, n + 2).

    Padding, which is 0, follows the end of a word.
    """
    characters = ops.cast(characters, "int32")
    lengths = ops.sum(ops.cast(characters > 0, "int32"), axis=-1, keepdims=True)
    ends = ops.cast(ops.arange(characters.shape[-1] + 1) == lengths, "int32")
    return ops.pad(ops.pad(characters, [[0, 0], [0, 1]]) + END * ends, [[0, 0], [1, 0]], constant_values=BEGIN)


def convolve_bytes(characters, table, *weights, max_bytes):
    """Computes relu(max over time(convolution)) of every width: ids (words, slots) to (words, all filters).

    The result does not depend on the number of slots and equals the result for `max_bytes` slots. Padding is a vector
    of zeros, so that all windows of padding have the value of the bias, and a single one suffices. A window that
    extends beyond the last slot is multiplied only up to this slot.

    Args:
        characters: Int tensor (words, slots). Padding is 0 and follows the bytes of a word. `slots` is `max_bytes`, or
            small enough that every width has a window of padding only.
        table: Float32 tensor (257 or 259, char_dim), one vector per byte and marker. Row 0 is not used, since padding
            is a vector of zeros; see `zero_padded` for other vectors of padding.
        weights: Kernels (width, char_dim, filters) of the widths 1, 2, …, their `beginnings`, and their biases. A width
            may have no filters.
        max_bytes: Number of slots of a word.
    """
    count = (len(weights) + 1) // 3
    kernels, begun, biases = weights[:count], weights[count : 2 * count - 1], weights[2 * count - 1 :]
    slots, dim = characters.shape[1], table.shape[1]
    vectors = ops.take(table, characters, axis=0) * ops.cast(characters > 0, table.dtype)[..., None]
    vectors = ops.cast(vectors, kernels[0].dtype)
    seen = [[] for _ in kernels]  # for each width, arrays (words, some windows, filters)
    for width, kernel in enumerate(kernels, 1):
        starts = slots - width + 1
        if starts > 0 and kernel.shape[-1]:
            windows = ops.concatenate([vectors[:, i : i + starts] for i in range(width)], axis=-1)
            filters = kernel.shape[-1]
            values = ops.matmul(ops.reshape(windows, [-1, width * dim]), ops.reshape(kernel, [width * dim, filters]))
            seen[width - 1].append(ops.reshape(values, [ops.shape(characters)[0], starts, filters]))
    for length in range(1, min(slots, count - 1) + 1) if slots < max_bytes else ():
        ending = ops.reshape(vectors[:, slots - length :], [-1, 1, length * dim])
        ends = np.cumsum([kernel.shape[-1] for kernel in kernels[length:]])
        values = ops.split(ops.matmul(ending, begun[length - 1]), ends, axis=-1)  # the part after the last end is empty
        seen[length:] = [[*windows, value] for windows, value in zip(seen[length:], values)]
    pairs = [(windows, bias) for windows, bias in zip(seen, biases) if bias.shape[0]]
    if slots < max_bytes:
        pairs = [([*windows, ops.zeros_like(windows[0][:, :1])], bias) for windows, bias in pairs]
    highest = [ops.max(ops.concatenate(windows, axis=1), axis=1) + bias for windows, bias in pairs]
    return ops.relu(ops.concatenate(highest, axis=-1))


def zero_padded(table, kernels, biases):
    """Moves the vector of padding, row 0 of the table, into the biases.

    A convolution is linear: Σ kernel_i·v_i = Σ kernel_i·(v_i − p) + Σ kernel_i·p with p for that vector. The last sum
    is the same for every window of every word, so that `convolve_bytes` can treat padding as zeros for any p.

    Args:
        table: Float32 tensor (257 or 259, char_dim), one vector per byte and marker.
        kernels: List of (width, char_dim, filters).
        biases: List of (filters,).

    Returns:
        `(table, biases)` with the same convolutions. No gradient flows to p.
    """
    padding = ops.stop_gradient(table[:1])
    seen = [ops.matmul(padding, ops.sum(ops.cast(kernel, padding.dtype), axis=0))[0] for kernel in kernels]
    return table - padding, [ops.cast(bias, value.dtype) + value for bias, value in zip(biases, seen)]


def beginnings(kernels):
    """Returns for lengths 1, 2, … the first `length` slices of all wider kernels, (length · char_dim, filters) each."""
    flat = lambda kernel, length: ops.reshape(kernel[:length], [length * kernel.shape[1], kernel.shape[2]])  # noqa: E731
    lengths = range(1, len(kernels))
    return [ops.concatenate([flat(kernel, length) for kernel in kernels[length:]], axis=-1) for length in lengths]


def highway(x, kernel, bias):
    """Computes σ(g)·x + (1 − σ(g))·relu(a) with [a ; g] = x·kernel + bias, for x (rows, dim), kernel (dim, 2·dim).

    Reference:
        Srivastava et al., Highway Networks, 2015, with the two linear layers in one matrix.
    """
    dim = x.shape[-1]
    both = ops.matmul(x, kernel) + bias
    gate = ops.sigmoid(both[:, dim:])
    return gate * x + (1 - gate) * ops.relu(both[:, :dim])
