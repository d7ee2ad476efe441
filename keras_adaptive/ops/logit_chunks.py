"""What is computed for one chunk of rows of `linear_cross_entropy`: losses, best classes and gradients."""

import keras
from keras import ops

from keras_adaptive.backend.ordering import with_dependencies
from keras_adaptive.ops.chunks import chunk_sizes

LEAST_SHARE = 1e-30  # lower bound of the probability of all classes, a divisor; too small to affect a gradient
EXCLUDED = 1e30  # subtracted from the logit of an excluded class; finite, so that no difference of two is NaN


def compiled_chunk(table, bias, extras, dtype, with_gradients, with_best, axis):
    """Returns the function of one chunk for `over_active_rows`, whose outputs are nll, best classes and gradients.

    With e = exp(logits − peak) over the classes, and p the total probability of the classes (below 1 if there are extra
    columns),

        nll = log Σ exp(every logit of the row) − logits[target]
        ∂(weight·nll)/∂logits = weight · p / Σe · (e − Σe / p · onehot)

    The per-row factor is applied to the (rows, dim) matrices, so that the much larger e is read as few times as
    possible. Only the differences between the logits and the largest logit of their row enter, as in a softmax, so
    that the precision does not depend on the size of the logits. The classes run along `axis` of the
    logits: (rows, classes) or (classes, rows).
    """
    classes, (narrow, wide) = table.shape[0], _cast(table, dtype)

    def body(inputs, live, carry):
        x, target, weight, *rest = inputs
        extra, excluded = rest[:extras], rest[extras:]
        logits = ops.matmul(x, ops.transpose(narrow)) if axis else ops.matmul(narrow, ops.transpose(x))
        logits = ops.cast(logits, "float32")
        for vector in bias:
            logits = logits + (vector if axis else vector[:, None])
        for columns in excluded:
            logits = _Column(columns, classes, axis).subtract_at(logits, EXCLUDED)
        word = _Column(target, classes, axis)
        picked = word.gather(logits)
        exps, total, peak, log_total = _exponentials(with_dependencies(logits, picked), axis)
        best = [peak, word.is_first(logits, peak)] if with_best else []
        share, probabilities = 1.0, []  # probabilities of all classes together and of the extra columns
        for extra_logits in extra:
            column = _Column(target - classes, extra_logits.shape[1], 1)
            picked = picked + column.gather(extra_logits)
            top = ops.maximum(peak, ops.max(extra_logits, axis=1))
            extra_exps = ops.exp(extra_logits - top[:, None])
            mass = ops.exp(peak - top + log_total)
            total_mass = mass + ops.sum(extra_exps, axis=1)
            share = ops.maximum(mass / total_mass, LEAST_SHARE)
            probabilities.append(extra_exps / total_mass[:, None])
            peak, log_total = top, ops.log(total_mass)
        nll = peak - picked + log_total
        if with_best:
            best[0] = best[0] - peak - log_total
            best += [extra_logits - peak[:, None] - log_total[:, None] for extra_logits in extra]
        if not with_gradients:
            return [nll, *best], carry
        d_logits = word.subtract_at(with_dependencies(exps, log_total), total / share)  # without the row's factor
        d_logits = d_logits if axis else ops.transpose(d_logits)  # (rows, classes)
        weight = ops.where(live, weight, 0.0)[:, None]
        factor = weight * (share / total)[:, None]
        of_bias = [old + ops.matmul(ops.transpose(factor), d_logits)[0] for old in carry[1:]]
        d_logits = ops.cast(d_logits, wide.dtype)
        scaled = ops.cast(factor * ops.cast(x, "float32"), wide.dtype)
        of_table = carry[0] + ops.cast(ops.matmul(ops.transpose(d_logits), scaled), "float32")
        of_x = factor * ops.cast(ops.matmul(d_logits, wide), "float32")
        of_extra = [weight * column.subtract_at(each, 1.0) for each in probabilities]
        return [nll, *best, of_x, *of_extra], [of_table, *of_bias]

    return body


def _exponentials(logits, axis):
    """Returns exp(logits − shift) for some shift of each row, its sum, the row's peak and log Σ exp(logits − peak)."""
    peak = ops.max(logits, axis)
    if keras.config.backend() == "tensorflow":  # tf.nn.softmax takes less time than tf.exp
        import tensorflow as tf

        exps = tf.nn.softmax(with_dependencies(logits, peak), axis)
        return exps, ops.ones_like(peak), peak, -ops.log(ops.max(exps, axis))
    exps = ops.exp(logits - ops.expand_dims(peak, axis))
    total = ops.sum(exps, axis)
    return exps, total, peak, ops.log(total)


def gradient_dtype(dtype):
    """Returns the dtype of products with the gradient of the logits: float16 holds no probability below 6e-8."""
    return "float32" if dtype == "float16" else dtype


def _cast(table, dtype):
    """Returns the table for the products of the logits and for the products with their gradient, cast once if equal."""
    narrow = ops.cast(table, dtype)
    return narrow, narrow if gradient_dtype(dtype) == dtype else ops.cast(table, "float32")


class _Column:
    """One column per row of a matrix whose columns run along `axis`; none where `columns` is out of range."""

    def __init__(self, columns, width, axis):
        self.inside = (columns >= 0) & (columns < width)
        self.columns = ops.where(self.inside, columns, 0)
        self.axis = axis

    def gather(self, matrix):
        """Returns the values of the columns (rows,), 0 where there is none."""
        values = ops.take_along_axis(matrix, ops.expand_dims(self.columns, self.axis), self.axis)
        return ops.where(self.inside, ops.reshape(values, [-1]), 0.0)

    def is_first(self, matrix, peak):
        """Returns 1.0 for the rows whose column is the first with the value `peak` (rows,), and else 0.0."""
        length = ops.shape(matrix)[self.axis]
        numbers = ops.arange(length, dtype="int32")
        numbers, peak = (numbers[None], peak[:, None]) if self.axis else (numbers[:, None], peak[None])
        first = ops.min(ops.where(matrix == peak, numbers, length), self.axis)
        return ops.cast(self.inside & (first == self.columns), "float32")

    def subtract_at(self, matrix, amounts):
        """Returns the matrix with `amounts`, a number or (rows,), subtracted from the values of the columns."""
        places = [ops.arange(ops.shape(self.columns)[0]), self.columns]
        places = ops.stack(places if self.axis else places[::-1], axis=-1)
        return ops.scatter_update(matrix, places, ops.where(self.inside, -amounts, 0.0), reduction="add")


def torch_chunk(table, bias, extras, dtype, with_gradients, with_best):
    """Works as `compiled_chunk`, but in place: one buffer holds the logits, then the probabilities, then the gradients.

    With bfloat16 the products hold the logits, then the gradients. The float32 buffer has only a block of their rows,
    which stays in the cache of the processor.
    """
    import torch

    classes, (narrow, wide), buffer = table.shape[0], _cast(table, dtype), None

    def body(inputs, live, carry):
        nonlocal buffer
        x, target, weight, *rest = inputs
        extra, excluded = rest[:extras], rest[extras:]
        kept = 0 if buffer is None else 1  # factor of the sums, which the first chunk overwrites
        if buffer is None:  # the first chunk is the largest
            columns = classes + sum(part.shape[1] for part in extra)
            rows = len(x) if wide.dtype == torch.float32 else -(-chunk_sizes().block_bytes // (4 * columns))
            buffer = torch.empty(min(rows, len(x)), columns, dtype=torch.float32, device=x.device)
        if x.dtype != torch.float32:
            products = x @ narrow.T
        elif bias:
            torch.addmm(*bias, x, narrow.T, out=buffer[: len(x), :classes])
        else:
            torch.mm(x, narrow.T, out=buffer[: len(x), :classes])
        target, weight = target.long()[:, None], weight[:, None]
        nll, best, of_extra = [], [], [[] for _ in extra]
        for start in range(0, len(x), len(buffer)):
            block = slice(start, min(start + len(buffer), len(x)))
            logits = buffer[: block.stop - start]
            words = logits[:, :classes]
            if x.dtype != torch.float32:
                words.copy_(products[block])
                for vector in bias:
                    words += vector
            for columns in excluded:
                columns = columns[block, None]
                words.scatter_add_(1, columns.clamp(min=0).long(), -EXCLUDED * (columns >= 0).float())
            for part in extra:
                logits[:, classes:] = part[block]
            torch.log_softmax(logits, -1, out=logits)
            nll.append(-logits.gather(1, target[block])[:, 0])
            if with_best:
                peak = words.amax(1)
                tops = (-nll[-1] >= peak).nonzero()[:, 0]  # of equal classes the first is the best
                hits = torch.zeros_like(peak)
                hits[tops] = (words[tops].argmax(1) == target[block][tops, 0]).float()
                best.append([peak, hits, *(logits[:, classes:].clone() for _ in extra)])
            if not with_gradients:
                continue
            logits.exp_().scatter_add_(1, target[block], logits.new_full((1, 1), -1.0).expand(len(logits), 1))
            for total in carry[1:]:
                total.addmv_(words.T, weight[block, 0], beta=1 if start else kept)
            for parts in of_extra:
                parts.append(weight[block] * logits[:, classes:])
            if wide.dtype != torch.float32:
                products[block] = words
        nll = [torch.cat(nll), *map(torch.cat, zip(*best))]
        if not with_gradients:
            return nll, carry
        products = words if wide.dtype == torch.float32 else products  # the gradients of the logits
        scaled = (weight * x).to(wide.dtype)
        if wide.dtype == torch.float32:
            carry[0].addmm_(products.T, scaled, beta=kept)
        elif kept:
            carry[0].add_(products.T @ scaled)
        else:
            carry[0].copy_(products.T @ scaled)
        return [*nll, weight * (products @ wide), *map(torch.cat, of_extra)], carry

    return body
