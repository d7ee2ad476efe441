"""Products of matrices and weighted averages of the tokens of a text."""

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.custom_vjp import custom_vjp
from keras_adaptive.backend.products import add_product, matmul
from keras_adaptive.backend.scan import scan
from keras_adaptive.ops.context.layout import (
    arranged,
    arranged_rows,
    as_rows,
    band_matrix,
    band_places,
    joined,
    padded,
    restored,
    time_first,
)

BLOCK_TOKENS = 128  # number of tokens whose averages are one matrix product
MOST_BLOCKS = 64  # limits the size of the compiled program for a long text


def product_of_averages(x, kernel, filters, before):
    """Returns the product of the blocks of the filters, and their sum."""
    learned = not isinstance(filters, np.ndarray)

    def forward(x, kernel, filters):
        text = _Text(x, before)

        def step(state, inputs):
            product, averages = state
            weights, matrix = inputs
            average = text.filtered(weights)
            product = add_product(product, as_rows(average, text.dim), matrix)
            return (product, averages + ops.cast(average, "float32")), ()

        rows = text.batch * text.length
        state = ops.zeros((rows, kernel.shape[1]), "float32"), ops.zeros(text.shape(text.length), "float32")
        (product, averages), _ = scan(step, state, (filters, text.blocks(kernel)), ())
        outputs = tuple(text.restored(rows) for rows in (product, as_rows(averages, text.dim)))
        return outputs, (x, kernel, filters)

    def backward(residuals, upstream):
        x, kernel, filters = residuals
        text = _Text(x, before)
        of_product, of_averages = map(arranged, upstream)
        of_product = as_rows(of_product, kernel.shape[1])
        of_averages = ops.cast(as_rows(of_averages, text.dim), "float32")

        def step(state, inputs):
            weights, matrix = inputs
            of_kernel = matmul(ops.transpose(as_rows(text.filtered(weights), text.dim)), of_product)
            of_average = of_averages + ops.cast(matmul(of_product, ops.transpose(matrix)), "float32")
            of_average = arranged_rows(ops.cast(of_average, x.dtype), text.batch, text.length)
            of_weights = text.of_weights(of_average, reach) if learned else ops.zeros((reach,), "float32")
            return (state[0] + text.unfiltered(of_average, weights),), (of_kernel, of_weights)

        count, reach = filters.shape
        state = (ops.zeros(text.shape(text.length + before), "float32"),)
        dtype = keras.backend.standardize_dtype(kernel.dtype)
        outputs = ((text.dim, kernel.shape[1]), dtype), ((reach,), "float32")
        (of_text,), (of_kernel, of_filters) = scan(step, state, (filters, text.blocks(kernel)), outputs)
        return [text.restored(as_rows(of_text, text.dim)), ops.reshape(of_kernel, kernel.shape), of_filters]

    return custom_vjp(forward, backward)(x, kernel, ops.cast(filters, "float32"))


class _Text:
    """A whole text (batch, before + length, dim) arranged as by `time_major`, `before` of it without an output."""

    def __init__(self, x, before):
        self.before, self.dim = before, x.shape[-1]
        self.batch, self.length = ops.shape(x)[0], ops.shape(x)[1] - before
        self.tokens = arranged(x)

    def shape(self, tokens):
        return (tokens, self.batch * self.dim) if time_first() else (self.batch, tokens, self.dim)

    def blocks(self, kernel):
        """Returns the matrices of the blocks as one tensor (blocks, dim, units)."""
        return ops.reshape(kernel, (kernel.shape[0] // self.dim, self.dim, kernel.shape[1]))

    def restored(self, rows):
        """Reshapes a matrix (rows, any dim) to (batch, tokens, dim) in the dtype of the text."""
        return restored(ops.cast(rows, self.tokens.dtype), self.batch)

    def filtered(self, weights):
        """Returns Σ_d weights[d]·x_{t−d}, arranged."""
        reach, (rows, blocks) = weights.shape[0], self._blocks(0, self.length)
        band = ops.cast(band_matrix(weights, rows), self.tokens.dtype)
        parts = []
        for start, end in blocks:
            first, last = max(0, self.before + start - reach + 1), self.before + end
            part = band[rows - (end - start) :, rows + reach - 1 - (last - first) :]
            parts.append(ops.matmul(part, self.tokens[..., first:last, :]))
        return joined(parts, -2)

    def unfiltered(self, of_filtered, weights):
        """Returns the gradient of the text, arranged, float32, given the gradient of `filtered(weights)`."""
        reach = weights.shape[0]
        unseen = max(0, self.before - reach + 1)  # tokens in front that no output sees
        rows, blocks = self._blocks(unseen, self.before + self.length)
        band = ops.cast(ops.flip(band_matrix(weights, rows)), of_filtered.dtype)  # weights[column − row]
        parts = []
        for start, end in blocks:
            first, last = max(0, start - self.before), self._least(self.length, end - self.before + reach - 1)
            column = self.before + first - start
            part = band[: end - start, column : column + last - first]
            parts.append(ops.matmul(part, of_filtered[..., first:last, :]))
        return padded(ops.cast(joined(parts, -2), "float32"), unseen, 0)

    def of_weights(self, of_filtered, reach):
        """Returns the gradient of the weights (reach,) of `filtered`, float32."""
        rows, blocks = self._blocks(0, self.length)
        columns, band = rows + reach - 1, 0.0
        for start, end in blocks:
            first, last = max(0, self.before + start - reach + 1), self.before + end
            tokens = ops.swapaxes(self.tokens[..., first:last, :], -1, -2)
            part = ops.cast(ops.matmul(of_filtered[..., start:end, :], tokens), "float32")
            part = part if time_first() else ops.sum(part, axis=0)  # (end − start, last − first)
            band = band + ops.pad(part, [[rows - (end - start), 0], [columns - (last - first), 0]])
        places = ops.reshape(band_places(reach, rows), (-1,))
        return ops.segment_sum(ops.reshape(band, (-1,)), places, reach + 2)[1:-1]

    def _blocks(self, first, last):
        """Returns the largest number of tokens of a block and the boundaries of the blocks from `first` to `last`.

        There is a single block if a graph does not know the length.
        """
        if not isinstance(self.length, int):
            return last - first, [(first, last)]
        size = min(last - first, max(BLOCK_TOKENS, -(-(last - first) // MOST_BLOCKS)))
        return size, [(start, min(start + size, last)) for start in range(first, last, size)]

    def _least(self, a, b):
        return min(a, b) if isinstance(self.length, int) else ops.minimum(a, b)
