"""Products of a matrix and the concatenated context of every token: its last tokens and averages of earlier ones."""

import functools

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_shapes
from keras_adaptive.backend.custom_vjp import custom_vjp
from keras_adaptive.backend.ordering import with_dependencies
from keras_adaptive.backend.products import add_product, adds_in_place
from keras_adaptive.ops.chunks import chunk_sizes
from keras_adaptive.ops.context.averages import product_of_averages
from keras_adaptive.ops.context.layout import (
    arranged,
    arranged_rows,
    as_rows,
    band_matrix,
    joined,
    padded,
    restored,
    time_first,
)
from keras_adaptive.typing import Tensor

UNKNOWN_BATCH_TOKENS = 128  # tokens per chunk if a graph does not know the number of rows


def context_product(
    x: Tensor, kernel: Tensor, bias: Tensor, filters: Tensor | None = None, *, num_local: int, before: int = 0
) -> tuple[Tensor, ...]:
    """Computes the product of the concatenated context of every token and a matrix, without the concatenation.

    The blocks of the concatenation at token t are x_t, x_{t−1}, …, x_{t−num_local+1}, followed by
    Σ_d filters[g, d]·x_{t−d} for each filter g. The product is the sum of one matrix product per block. An average is
    itself the product of the text and a matrix (tokens, tokens) with few diagonals. The averages are computed one by
    one, and again in the backward pass. No array has the size of the concatenation, and the cost is linear in the
    length of the text. Sums over blocks are in float32.

    Args:
        x: Float tensor (batch, before + length, dim). Tokens before the text count as zeros.
        kernel: Float tensor ((num_local + filters)·dim, units) in the dtype of `x`, with its rows in the order of the
            blocks.
        bias: Float tensor (units,) in the dtype of `x`.
        filters: Float tensor (filters, distances), the weights of the tokens at the distances 0, 1, …; `None` for no
            filters. A NumPy array is a constant, for which no gradient is computed.
        num_local: Number of blocks that are single tokens, at least 1.
        before: Number of leading tokens of `x` that are only context and have no output.

    Returns:
        `(product, total)` or, with filters, `(product, total, averages)` in the dtype of `x`: the product plus the bias
        (batch, length, units), the sum of all blocks (batch, length, dim), and the sum of the blocks of the filters
        (batch, length, dim). All arguments have gradients.

    Raises:
        ValueError: If the shapes do not fit together, `num_local` is below 1 or `before` is negative.

    Reference:
        Sun and Iyyer, Revisiting Simple Neural Probabilistic Language Models, NAACL 2021, section 2.1.

    Example:

    >>> x = np.ones((2, 16, 6), "float32")
    >>> kernel, bias = np.ones((4 * 6, 8), "float32"), np.zeros(8, "float32")
    >>> product, total = context_product(x, kernel, bias, num_local=4)
    >>> keras.ops.convert_to_numpy(product)[0, :5, 0]  # the first three tokens lack context
    array([ 6., 12., 18., 24., 24.], dtype=float32)
    """
    check_shapes(x=(x, "batch tokens dim"), kernel=(kernel, "rows units"), bias=(bias, "units"))
    blocks = num_local + (0 if filters is None else filters.shape[0])
    if num_local < 1 or not 0 <= before or kernel.shape[0] != blocks * x.shape[-1]:
        raise ValueError(
            f"`kernel` must have {blocks} blocks of {x.shape[-1]} rows, one per local token (at least 1) "
            f"and filter, and `before` must not be negative. Received: shape={tuple(kernel.shape)}, "
            f"num_local={num_local}, before={before}."
        )
    x, kernel, bias = (ops.convert_to_tensor(tensor) for tensor in (x, kernel, bias))
    if filters is None:
        return _product_of_tokens(x, kernel, bias, num_local, before)
    rows = num_local * x.shape[-1]
    product, total = _product_of_tokens(x, kernel[:rows], bias, num_local, before)
    more, averages = product_of_averages(x, kernel[rows:], filters, before)
    return product + more, total + averages, averages


def _product_of_tokens(x, kernel, bias, num_local, before):
    """Returns the product of the local blocks with the bias, and their sum."""

    def forward(x, kernel, bias):
        return _tokens_forward(_Chunks(x, num_local, before), kernel, bias), (x, kernel)

    def backward(residuals, upstream):
        x, kernel = residuals
        of_x, of_kernel = _tokens_backward(_Chunks(x, num_local, before), kernel, *upstream)
        of_bias = ops.sum(ops.cast(upstream[0], "float32"), axis=(0, 1))
        return [ops.cast(gradient, x.dtype) for gradient in (of_x, of_kernel, of_bias)]

    return custom_vjp(forward, backward)(x, kernel, bias)


def _tokens_forward(chunks, kernel, bias):
    kernels, bias = chunks.blocks(kernel), ops.cast(bias, "float32")

    def product(window, size):
        rows_and_matrices = zip(chunks.blocks_of(window, size), kernels, strict=True)
        return functools.reduce(lambda total, pair: add_product(total, *pair), rows_and_matrices, bias)

    def total(window, size):
        return as_rows(chunks.sums(window, size), chunks.dim)

    product = chunks.output(product, bias.shape[0])
    return product, chunks.output(total, chunks.dim, after=product)


def _tokens_backward(chunks, kernel, of_product, of_total):
    kernels, whole = chunks.blocks(kernel), ops.zeros(kernel.shape, "float32")

    def rows_of_product(start, size, *after):
        return as_rows(arranged(chunks.slice(of_product, start, size, *after)), kernel.shape[1])  # (rows, units)

    def add_to_kernels(start, size, of_kernels):
        upstream = rows_of_product(start, size, of_kernels[-1])
        blocks = chunks.blocks_of(chunks.window(start, size, of_kernels[-1]), size)
        return [add_product(total, ops.transpose(rows), upstream) for total, rows in zip(of_kernels, blocks)]

    def part_of_text(start, size, overlap):
        of_window = chunks.unsummed(arranged(chunks.slice(of_total, start, size, overlap, of_kernel)), size)
        of_window = chunks.add_gradients(of_window, rows_of_product(start, size, of_window), kernels, size)
        of_window = chunks.add_overlap(of_window, overlap, size)
        first = chunks.num_local - 1
        return chunks.restored(as_rows(of_window[..., first:, :], chunks.dim)), of_window[..., :first, :]

    of_kernels = chunks.fold(add_to_kernels, chunks.blocks(whole))
    of_kernel = whole if adds_in_place() else joined(of_kernels, 0)
    return chunks.gradient(part_of_text), of_kernel


class _Chunks:
    """A text (batch, before + length, dim) in chunks of a few tokens of every row; the first may have another size.

    The window of a chunk contains the tokens that its outputs see, in the arrangement of `time_major`.
    """

    def __init__(self, x, num_local, before):
        self.x, self.num_local, self.before = x, num_local, before
        self.batch, self.dim, self.length = ops.shape(x)[0], x.shape[-1], ops.shape(x)[1] - before
        rows = chunk_sizes().context_rows
        self.size = max(1, rows // max(self.batch, 1)) if isinstance(self.batch, int) else UNKNOWN_BATCH_TOKENS
        self.count, self.first = 0, self.length  # chunks after the first one, tokens of the first one
        if isinstance(self.length, int):
            if not time_first():  # limits the concatenation of a chunk to a third of the size of the text
                self.size = max(self.size, self.length // (4 * num_local))
            self.count = max(0, (self.length - max(1, num_local - 1 - before)) // self.size)
            self.first = self.length - self.count * self.size

    def blocks(self, kernel):
        """Returns the list of the matrices for `blocks_of`."""
        if not time_first():
            return [kernel]
        return [kernel[first : first + self.dim] for first in range(0, kernel.shape[0], self.dim)]

    def slice(self, x, start, size, *after):
        """Returns `size` tokens of `x` (batch, tokens, dim) from `start`, an int or, under JAX, a tensor.

        Under TensorFlow they are read only when `after` are computed.
        """
        x = with_dependencies(x, *after)
        if isinstance(start, int):
            return x[:, start : start + size]
        return ops.slice(x, (0, start, 0), (self.batch, size, x.shape[-1]))

    def window(self, start, size, *after):
        """Returns the tokens that the outputs from `start` see, arranged, with zeros before the text."""
        first, tokens = self.before + start - self.num_local + 1, size + self.num_local - 1
        if isinstance(start, int) and first < 0:
            return arranged(padded(self.slice(self.x, 0, tokens + first, *after), -first, 0))
        return arranged(self.slice(self.x, first, tokens, *after))

    def tokens_of(self, window, size):
        """Returns the tokens at the distances 0, 1, … from the outputs, a list of arranged tensors."""
        return [window[..., first : first + size, :] for first in reversed(range(self.num_local))]

    def blocks_of(self, window, size):
        """Returns the local blocks, a list of matrices (rows, dim); under JAX one matrix (rows, num_local·dim).

        XLA would compute the products of all blocks before it adds them, and would copy each block.
        """
        blocks = self.tokens_of(window, size)
        blocks = blocks if time_first() else [ops.concatenate(blocks, axis=-1)]
        return [as_rows(block, block.shape[-1] if not time_first() else self.dim) for block in blocks]

    def restored(self, rows):
        """Reshapes a matrix (rows, any dim) to (batch, tokens, dim) in the dtype of the text."""
        return restored(ops.cast(rows, self.x.dtype), self.batch)

    def sums(self, window, size):
        """Returns the sums of the local blocks, arranged."""
        if time_first():
            return ops.matmul(ops.cast(band_matrix(np.ones(self.num_local, "float32"), size), window.dtype), window)
        return sum(ops.cast(tokens, "float32") for tokens in self.tokens_of(window, size))

    def unsummed(self, of_sums, size):
        """Returns the gradient of the window, float32, given the gradient of `sums`."""
        if time_first():
            band = ops.cast(band_matrix(np.ones(self.num_local, "float32"), size), of_sums.dtype)
            return ops.cast(ops.matmul(ops.transpose(band), of_sums), "float32")
        of_window = ops.zeros((self.batch, size + self.num_local - 1, self.dim), "float32")
        for first in range(self.num_local):
            of_window = _add_at(of_window, ops.cast(of_sums, "float32"), first)
        return of_window

    def add_gradients(self, of_window, upstream, kernels, size):
        """Adds the gradient through the products to a gradient of the window, which may be overwritten."""
        last = self.num_local - 1
        if adds_in_place():
            for distance, kernel in enumerate(kernels):
                rows = of_window[last - distance : last - distance + size].view(-1, self.dim)
                add_product(rows, upstream, kernel.T)
            return of_window
        for block, kernel in enumerate(kernels):
            product = ops.matmul(with_dependencies(upstream, of_window), ops.transpose(kernel))
            product = arranged_rows(ops.cast(product, "float32"), self.batch, size)
            parts = [product] if time_first() else ops.split(product, self.num_local, axis=-1)
            for distance, part in enumerate(parts, start=block):
                if time_first():
                    of_window = of_window + padded(part, last - distance, distance)
                else:
                    of_window = _add_at(of_window, part, last - distance)
        return of_window

    def add_overlap(self, of_window, overlap, size):
        """Adds the part of the gradient of a window that comes from the next chunk."""
        if not isinstance(size, int) or not self.num_local - 1:
            return of_window
        if adds_in_place():
            of_window[size:] += overlap
            return of_window
        return of_window + padded(overlap, size, 0)

    def output(self, rows_of, dim, after=None):
        """Joins the rows that `rows_of(window, size)` returns for each chunk to a tensor (batch, length, dim).

        Under TensorFlow the first chunk waits for `after`, so that only one output exists in parts at a time.
        """

        def part(start, size, before):
            before = () if before is None else (before,)
            return self.restored(rows_of(self.window(start, size, *before), size))

        first = part(0, self.first, after)
        starts = [self.first + number * self.size for number in range(self.count)]
        if keras.config.backend() == "tensorflow":
            parts = [first]
            for start in starts:
                parts.append(part(start, self.size, parts[-1]))
            return joined(parts, 1)
        if not self.count:
            return first
        array = _put(ops.empty((self.batch, self.length, dim), self.x.dtype), first, 0)

        def add(number, state):
            start = self.first + number * self.size
            return [_put(state[0], part(start, self.size, None), start)]

        return _loop(self.count, add, [array])[0]

    def fold(self, add, state):
        """Updates `state` by `add(start, size, state)` for each chunk in order."""
        state = add(0, self.first, state)
        return _loop(self.count, lambda number, state: add(self.first + number * self.size, self.size, state), state)

    def gradient(self, part_of_text):
        """Joins the gradients that `part_of_text(start, size, overlap)` returns, called for the last chunk first.

        The overlap is the gradient, through a chunk, of the tokens before it.
        """
        overlap = ops.zeros(self._arranged_shape(self.num_local - 1), "float32")
        unseen = max(0, self.before - self.num_local + 1)
        if keras.config.backend() == "tensorflow" or not self.count:
            parts = []
            for number in reversed(range(self.count)):
                part, overlap = part_of_text(self.first + number * self.size, self.size, overlap)
                parts.insert(0, part)
            part, overlap = part_of_text(0, self.first, overlap)
            return padded(joined([*self._front(overlap), part, *parts], 1), unseen, 0)

        def add(number, state):
            start = self.first + (self.count - 1 - number) * self.size
            part, overlap = part_of_text(start, self.size, state[1])
            return [_put(state[0], part, self.before + start), overlap]

        of_x, overlap = _loop(self.count, add, [ops.zeros(ops.shape(self.x), self.x.dtype), overlap])
        part, overlap = part_of_text(0, self.first, overlap)
        of_x = _put(of_x, part, self.before)
        for front in self._front(overlap):
            of_x = _put(of_x, front, unseen)
        return of_x

    def _front(self, overlap):
        """Returns a list with the gradient of the tokens before the first output, or an empty list."""
        tokens = min(self.before, self.num_local - 1)
        if not tokens:
            return []
        return [self.restored(as_rows(overlap[..., self.num_local - 1 - tokens :, :], self.dim))]

    def _arranged_shape(self, tokens):
        return (tokens, self.batch * self.dim) if time_first() else (self.batch, tokens, self.dim)


def _put(array, part, start):
    """Replaces the tokens of `array` (batch, tokens, dim) from `start` by `part`; may overwrite `array`."""
    if keras.config.backend() == "torch":
        array[:, start : start + part.shape[1]] = part
        return array
    return ops.slice_update(array, (0, start, 0), part)


def _add_at(total, part, start):
    """Adds `part` to the tokens of `total` (batch, tokens, dim) from `start`; XLA adds in place."""
    part = part + total[:, start : start + part.shape[1]]
    return ops.slice_update(total, (0, start, 0), part)


def _loop(count, body, state):
    if keras.config.backend() == "jax" and count:  # a loop without a turn is traced, too
        return ops.fori_loop(0, count, body, state)
    for number in range(count):
        state = body(number, state)
    return state
