"""Words as bytes, and the convolutions and highway layers on them."""

import numpy as np
from keras import ops

from keras_adaptive.backend.custom_vjp import with_gradient_of

BEGIN, END = 257, 258  # markers of a word, after the bytes, which are their values + 1


def encode_words(words, max_bytes):
    """Returns the UTF-8 bytes, each + 1, of words, which are not empty, padded with 0: int16 (words, max_bytes)."""
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


class Convolutions:
    """A function of `map_rows` that computes relu(max over time(convolution)) of every width.

    Called with ids (words, at least `slots`) and the weights, it returns (words, all filters). The result does not
    depend on the number of slots and equals the result for `max_bytes` slots. Padding is a vector of zeros, so that all
    windows of padding have the value of the bias, and a single one suffices. A window that extends beyond the last slot
    is multiplied only up to this slot. For the gradient it saves the place of the highest window, −1 where relu is 0.

    The arguments of a call are:

    - characters: Int tensor (words, at least `slots`), of which `slots` are read. Padding is 0 and follows the bytes of
      a word.
    - table: Float32 tensor (257 or 259, char_dim), one vector per byte and marker. Row 0 is not used, since padding is
      a vector of zeros; see `zero_padded` for other vectors of padding.
    - weights: Kernels (width, char_dim, filters) of the widths 1, 2, …, their `beginnings`, and their biases. A width
      may have no filters.

    Args:
        slots: Number of slots that are read: `max_bytes`, or few enough that every width has a window of padding only.
        max_bytes: Number of slots of a word.
    """

    def __init__(self, slots, max_bytes):
        self.slots = slots
        self.max_bytes = max_bytes

    def __call__(self, characters, table, *weights):
        windows, biases = self._windows(characters, table, weights)
        return ops.relu(_highest(windows, biases))

    def save(self, characters, table, *weights):
        windows, biases = self._windows(characters, table, weights)
        highest = _highest(windows, biases)
        places = ops.concatenate([ops.argmax(values, axis=1) for values in windows], axis=-1)
        return ops.relu(highest), [ops.where(highest > 0, places, -1)]

    def from_saved(self, saved, characters, table, *weights):
        windows, biases = self._windows(characters, table, weights)
        ends = np.cumsum([bias.shape[0] for bias in biases])[:-1]
        chosen = []
        for values, bias, places in zip(windows, biases, ops.split(saved[0], ends, axis=-1)):
            here = ops.arange(values.shape[1])[None, :, None] == places[:, None]
            chosen.append(ops.sum(ops.where(here, values, 0), axis=1) + ops.where(places >= 0, bias, 0))
        return ops.concatenate(chosen, axis=-1)

    def _windows(self, characters, table, weights):
        """Returns for each width with filters the products (words, windows, filters), and the biases."""
        slots, dim = self.slots, table.shape[1]
        count = (len(weights) + 1) // 3
        kernels, begun, biases = weights[:count], weights[count : 2 * count - 1], weights[2 * count - 1 :]
        characters = characters[:, :slots]
        vectors = ops.take(table, characters, axis=0) * ops.cast(characters > 0, table.dtype)[..., None]
        vectors = ops.cast(vectors, kernels[0].dtype)
        seen = [[] for _ in kernels]  # for each width, arrays (words, some windows, filters)
        for width, kernel in enumerate(kernels, 1):
            starts = slots - width + 1
            if starts > 0 and kernel.shape[-1]:
                windows = ops.concatenate([vectors[:, i : i + starts] for i in range(width)], axis=-1)
                flat = ops.reshape(kernel, [width * dim, kernel.shape[-1]])
                values = ops.matmul(ops.reshape(windows, [-1, width * dim]), flat)
                seen[width - 1].append(ops.reshape(values, [ops.shape(characters)[0], starts, kernel.shape[-1]]))
        for length in range(1, min(slots, count - 1) + 1) if slots < self.max_bytes else ():
            ending = ops.reshape(vectors[:, slots - length :], [-1, 1, length * dim])
            ends = np.cumsum([kernel.shape[-1] for kernel in kernels[length:]])
            values = ops.split(ops.matmul(ending, begun[length - 1]), ends, axis=-1)  # nothing is after the last end
            seen[length:] = [[*windows, value] for windows, value in zip(seen[length:], values)]
        seen, biases = zip(*((windows, bias) for windows, bias in zip(seen, biases) if bias.shape[0]))
        if slots < self.max_bytes:
            seen = [[*windows, ops.zeros_like(windows[0][:, :1])] for windows in seen]
        return [ops.concatenate(windows, axis=1) for windows in seen], biases


def _highest(windows, biases):
    return ops.concatenate([ops.max(values, axis=1) + bias for values, bias in zip(windows, biases)], axis=-1)


def zero_padded(table, kernels, biases):
    """Moves the vector of padding, row 0 of the table, into the biases.

    A convolution is linear: Σ kernel_i·v_i = Σ kernel_i·(v_i − p) + Σ kernel_i·p with p for that vector. The last sum
    is the same for every window of every word, so that `Convolutions` can treat padding as zeros for any p. The
    returned `(table, biases)` give the same convolutions. No gradient flows to p.
    """
    padding = ops.stop_gradient(table[:1])
    seen = [ops.matmul(padding, ops.sum(ops.cast(kernel, padding.dtype), axis=0))[0] for kernel in kernels]
    return table - padding, [ops.cast(bias, value.dtype) + value for bias, value in zip(biases, seen)]


def beginnings(kernels):
    """Returns for lengths 1, 2, … the first `length` slices of all wider kernels, (length · char_dim, filters) each."""
    flat = lambda kernel, length: ops.reshape(kernel[:length], [length * kernel.shape[1], kernel.shape[2]])  # noqa: E731
    lengths = range(1, len(kernels))
    return [ops.concatenate([flat(kernel, length) for kernel in kernels[length:]], axis=-1) for length in lengths]


class Highways:
    """A function of `map_rows` that computes highway layers and a projection after them.

    Called with features (rows, dim) and the weights, it returns (rows, output_dim). The weights are the kernels
    (dim, 2·dim) of the layers, their biases (2·dim,), and the kernel and the bias of the projection. A layer computes
    σ(g)·x + (1 − σ(g))·relu(a) with [a ; g] = x·kernel + bias. For the gradient it saves [a ; g] of each layer.

    Reference:
        Srivastava et al., Highway Networks, 2015, with the two linear layers in one matrix.
    """

    def __call__(self, features, *weights):
        return self.save(features, *weights)[0]

    def save(self, features, *weights):
        return self._compute(features, weights, None)

    def from_saved(self, saved, features, *weights):
        return self._compute(features, weights, saved)[0]

    def _compute(self, x, weights, saved):
        *layers, projection, projection_bias = weights
        count, dim, linear = len(layers) // 2, x.shape[-1], []
        for place, (kernel, bias) in enumerate(zip(layers[:count], layers[count:])):
            both = ops.matmul(x, kernel) + bias
            linear.append(both if saved is None else with_gradient_of(both, saved[place]))
            gate = ops.sigmoid(linear[-1][:, dim:])
            x = gate * x + (1 - gate) * ops.relu(linear[-1][:, :dim])
        return ops.matmul(x, projection) + projection_bias, linear
