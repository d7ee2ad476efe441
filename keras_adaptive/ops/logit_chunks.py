"""What is computed for one chunk of rows of `linear_cross_entropy`: losses, best classes and gradients."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_adaptive.backend.custom_vjp import vjp
from keras_adaptive.backend.ordering import with_dependencies
from keras_adaptive.backend.products import add_product, is_by_onednn, matmul
from keras_adaptive.ops.chunks import chunk_sizes

LEAST_SHARE = 1e-30  # lower bound of the probability of all classes, a divisor; too small to affect a gradient
EXCLUDED = 1e30  # subtracted from the logit of an excluded class; finite, so that no difference of two is NaN


class Inputs(NamedTuple):
    """Tensors of a `linear_cross_entropy`, or of a chunk of its rows; `None` stands for what is not given."""

    x: Any
    targets: Any
    weights: Any
    extra_logits: Any = None
    excluded: Any = None
    table: Any = None
    bias: Any = None


class Wanted(NamedTuple):
    """What a chunk computes.

    Attributes:
        loss: What a row is worth, see `losses.RowLoss`, or `None` for the cross-entropy.
        soft_cap: Bound of the logits, or `None`.
        gradients: Whether to compute gradients.
        best: Whether to find the best class of every row.
        table_gradients: Whether the gradients include those of table and bias.
    """

    loss: Any = None
    soft_cap: float | None = None
    gradients: bool = True
    best: bool = False
    table_gradients: bool = True

    @classmethod
    def of(cls, loss, best=False, table_gradients=True):
        """Returns what a training loss wants; `None` is the cross-entropy."""
        own = {} if loss is None else {"loss": None if loss.is_plain else loss, "soft_cap": loss.soft_cap}
        return cls(**own, best=best, table_gradients=table_gradients)


def compiled_chunk(table, bias, dtype, wanted, axis):
    """Returns the function of one chunk, `(rows, live, sums) → (results, sums)`, two dicts.

    With e = exp(logits − peak) over the classes, and p the total probability of the classes (below 1 if there are extra
    columns), the plain cross-entropy has

        nll = log Σ exp(every logit of the row) − logits[target]
        ∂(weight·nll)/∂logits = weight · p / Σe · (e − Σe / p · onehot)

    The per-row factor is applied to the (rows, dim) matrices, so that the much larger e is read as few times as
    possible. Only the differences between the logits and the largest logit of their row enter, as in a softmax, so
    that the precision does not depend on the size of the logits. The classes run along `axis` of the
    logits: (rows, classes) or (classes, rows).
    """
    classes, (narrow, wide), (loss, cap, *_) = table.shape[0], _cast(table, dtype), wanted
    expand = lambda vector: ops.expand_dims(vector, axis)  # noqa: E731 (one number per row, for every class)

    def chunk(rows, live, sums):
        logits = ops.matmul(rows.x, ops.transpose(narrow)) if axis else ops.matmul(narrow, ops.transpose(rows.x))
        logits = ops.cast(logits, "float32")
        if bias is not None:
            logits = logits + (bias if axis else bias[:, None])
        if rows.excluded is not None:
            logits = _Column(rows.excluded, classes, axis).subtract_at(logits, EXCLUDED)
        logits, extra = capped(logits, cap), capped(rows.extra_logits, cap)
        word = _Column(rows.targets, classes, axis)
        picked = word.gather(logits)
        peak, results, share = ops.max(logits, axis), {}, 1.0  # the probability of all classes of the table together
        if wanted.best:
            results |= {"best_log_probs": peak, "hits": word.is_first(logits, peak)}
        # What reads the logits comes first, so that the exponentials take their place.
        exps, total, log_total = _exponentials(with_dependencies(logits, picked, *results.values()), peak, axis)
        if extra is not None:
            column = _Column(rows.targets - classes, extra.shape[1], 1)
            picked = picked + column.gather(extra)
            top = ops.maximum(peak, ops.max(extra, axis=1))
            extra_exps = ops.exp(extra - top[:, None])
            mass = ops.exp(peak - top + log_total)
            total_mass = mass + ops.sum(extra_exps, axis=1)
            share = ops.maximum(mass / total_mass, LEAST_SHARE)
            peak, log_total = top, ops.log(total_mass)
        results["nll"] = peak - picked + log_total
        if wanted.best:
            results["best_log_probs"] = results["best_log_probs"] - peak - log_total
            if extra is not None:
                results["extra_log_probs"] = extra - peak[:, None] - log_total[:, None]
        if loss is not None:
            results["log_totals"] = peak + log_total
            mean = 0.0
            if loss.reads_mean:
                mean = ops.sum(logits, axis) + (0.0 if extra is None else ops.sum(extra, axis=1))
            columns = classes + (0 if extra is None else extra.shape[1])
            results["losses"], slopes = of_row(loss, picked, results["log_totals"], mean / columns)
        if not wanted.gradients:
            return results, sums
        weight = ops.where(live, rows.weights, 0.0)[:, None]
        if loss is None:
            factor = weight * (share / total)[:, None]
            d_logits = word.subtract_at(with_dependencies(exps, log_total), total / share)
        else:
            factor = weight
            d_logits = exps * expand(slopes.log_total * share / total)
            d_logits = word.subtract_at(d_logits + expand(slopes.mean / columns), -slopes.target)
        d_logits = under_cap(d_logits, logits, cap)
        d_logits = d_logits if axis else ops.transpose(d_logits)  # (rows, classes), without the row's factor
        new = {}
        if "bias" in sums:
            new["bias"] = sums["bias"] + ops.matmul(ops.transpose(factor), d_logits)[0]
        d_logits = ops.cast(d_logits, wide.dtype)
        results["x"] = factor * ops.cast(ops.matmul(d_logits, wide), "float32")
        if "table" in sums:
            # At the same time, products would take longer than one after the other.
            d_logits = with_dependencies(d_logits, results["x"])
            scaled = ops.cast(factor * ops.cast(rows.x, "float32"), wide.dtype)
            new["table"] = sums["table"] + ops.cast(ops.matmul(ops.transpose(d_logits), scaled), "float32")
        if extra is not None:
            d_extra = extra_exps / total_mass[:, None]
            if loss is None:
                d_extra = column.subtract_at(d_extra, 1.0)
            else:
                d_extra = d_extra * slopes.log_total[:, None] + slopes.mean[:, None] / columns
                d_extra = column.subtract_at(d_extra, -slopes.target)
            results["extra_logits"] = weight * under_cap(d_extra, extra, cap)
        return results, new

    return chunk


class Slopes(NamedTuple):
    """Derivatives of the losses of rows by the three numbers that they depend on."""

    target: Any
    log_total: Any
    mean: Any


def of_row(loss, *numbers):
    """Returns the losses (rows,) and their `Slopes`, given each row's logit of the target, log-sum-exp and mean."""
    numbers = [ops.broadcast_to(ops.convert_to_tensor(number, "float32"), ops.shape(numbers[0])) for number in numbers]
    losses = loss.row(*numbers)
    return losses, Slopes(*vjp(loss.row, numbers, ops.ones_like(losses)))


def capped(logits, soft_cap):
    """Returns the logits, which a `soft_cap` c bounds smoothly: c · tanh(logits / c)."""
    return logits if soft_cap is None or logits is None else soft_cap * ops.tanh(logits / soft_cap)


def under_cap(d_logits, logits, soft_cap):
    """Returns the derivatives by the logits before the cap, given those by the `logits` after it."""
    return d_logits if soft_cap is None else d_logits * (1.0 - ops.square(logits / soft_cap))


def _exponentials(logits, peak, axis):
    """Returns exp(logits − shift) for some shift of each row, its sum, and log Σ exp(logits − peak)."""
    if keras.config.backend() == "tensorflow":  # tf.nn.softmax takes less time than tf.exp
        import tensorflow as tf

        exps = tf.nn.softmax(with_dependencies(logits, peak), axis)
        return exps, ops.ones_like(peak), -ops.log(ops.max(exps, axis))
    exps = ops.exp(logits - ops.expand_dims(peak, axis))
    total = ops.sum(exps, axis)
    return exps, total, ops.log(total)


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
        if keras.config.backend() == "tensorflow":  # whose argmax makes no array of the size of the matrix
            import tensorflow as tf

            first = tf.argmax(matrix, self.axis, output_type="int32")
            return ops.cast(self.inside & (first == self.columns) & (peak == peak), "float32")  # NaN is no peak
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


class TorchChunk:
    """Works as `compiled_chunk`, but in place: one buffer holds the logits, then the probabilities, then the gradients.

    With bfloat16, and by oneDNN, the products hold the logits, then the gradients. The float32 buffer has only a block
    of their rows, which stays in the cache of the processor.
    """

    def __init__(self, table, bias, dtype, wanted):
        self.classes, self.bias, self.wanted = table.shape[0], bias, wanted
        self.narrow, self.wide = _cast(table, dtype)
        self.buffer, self.in_blocks = None, False

    def __call__(self, rows, live, sums):
        import torch

        is_first = self.buffer is None  # it overwrites the sums
        if is_first:
            self._allocate(rows)
        products = self._products(rows.x)
        rows = rows._replace(targets=rows.targets.long()[:, None], weights=rows.weights[:, None])
        blocks = []
        for start in range(0, len(rows.x), len(self.buffer)):
            block = slice(start, start + len(self.buffer))
            inside = Inputs(*(None if part is None else part[block] for part in rows))
            held = None if products is None else products[block]
            logits, results = self._block(inside, held)
            blocks.append(results)
            if self.wanted.gradients:
                words = logits[:, : self.classes]
                if "bias" in sums:
                    sums["bias"].addmv_(words.T, inside.weights[:, 0], beta=0 if is_first and start == 0 else 1)
                if self.in_blocks and logits is not held:
                    held.copy_(words)
        results = {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}
        if self.wanted.gradients:
            d_logits = products if self.in_blocks else words
            results["x"] = rows.weights * matmul(d_logits, self.wide)
            if "table" in sums:
                scaled = (rows.weights * rows.x).to(self.wide.dtype)
                add_product(sums["table"], d_logits.T, scaled, is_first)
        return results, sums

    def _allocate(self, rows):
        """Makes the buffer for the first chunk, which is the largest."""
        import torch

        self.in_blocks = self.wide.dtype != torch.float32 or is_by_onednn(rows.x, self.narrow.T)
        columns = self.classes + (0 if rows.extra_logits is None else rows.extra_logits.shape[1])
        count = -(-chunk_sizes().block_bytes // (4 * columns)) if self.in_blocks else len(rows.x)
        size = min(count, len(rows.x)), columns
        self.buffer = torch.empty(size, dtype=torch.float32, device=rows.x.device)

    def _products(self, x):
        """Writes float32 logits of the words into the buffer, or returns products, without the bias."""
        import torch

        if self.in_blocks or x.dtype != torch.float32:
            return matmul(x, self.narrow.T)
        words = self.buffer[: len(x), : self.classes]
        if self.bias is None:
            torch.mm(x, self.narrow.T, out=words)
        else:
            torch.addmm(self.bias, x, self.narrow.T, out=words)
        return None

    def _block(self, rows, products):
        """Returns gradients without weights, in the buffer or in place of the products, and the results of the rows."""
        import torch

        logits, (loss, cap, *_) = self.buffer[: len(rows.targets)], self.wanted
        if products is not None and products.dtype == torch.float32 and products.shape[1] == logits.shape[1]:
            logits = products
        words = logits[:, : self.classes]
        if products is not None:
            if logits is not products:
                words.copy_(products)
            if self.bias is not None:
                words += self.bias
        if rows.excluded is not None:
            column = rows.excluded[:, None]
            words.scatter_add_(1, column.clamp(min=0).long(), -EXCLUDED * (column >= 0).float())
        if rows.extra_logits is not None:
            logits[:, self.classes :] = rows.extra_logits
        before = None
        if cap is not None:
            before = capped(logits, cap)
            logits.copy_(before)
        if loss is None:
            torch.log_softmax(logits, -1, out=logits)
            results = {"nll": -logits.gather(1, rows.targets)[:, 0]}
        else:
            results, slopes = self._loss(logits, rows.targets)
        if self.wanted.best:
            results |= self._best(logits, rows.targets, results["nll"])
        if not self.wanted.gradients:
            return logits, results
        logits.exp_()
        at_target = logits.new_full((1, 1), -1.0).expand(len(logits), 1)
        if loss is not None:
            logits.mul_(slopes.log_total[:, None]).add_(slopes.mean[:, None] / logits.shape[1])
            at_target = slopes.target[:, None]
        logits.scatter_add_(1, rows.targets, at_target)
        if cap is not None:
            logits.copy_(under_cap(logits, before, cap))
        if rows.extra_logits is not None:
            results["extra_logits"] = rows.weights * logits[:, self.classes :]
        return logits, results

    def _loss(self, logits, targets):
        """Subtracts the log-sum-exp from the logits; returns the results of a loss of rows and its `Slopes`."""
        picked, mean = logits.gather(1, targets)[:, 0], logits.mean(1) if self.wanted.loss.reads_mean else 0.0
        log_totals = logits.logsumexp(1)
        logits.sub_(log_totals[:, None])
        losses, slopes = of_row(self.wanted.loss, picked, log_totals, mean)
        return {"nll": log_totals - picked, "log_totals": log_totals, "losses": losses}, slopes

    def _best(self, log_probs, targets, nll):
        import torch

        words = log_probs[:, : self.classes]
        peak = words.amax(1)
        tops = (-nll >= peak).nonzero()[:, 0]  # of equal classes the first is the best
        hits = torch.zeros_like(peak)
        hits[tops] = (words[tops].argmax(1) == targets[tops, 0]).float()
        best = {"best_log_probs": peak, "hits": hits}
        return best | (
            {"extra_log_probs": log_probs[:, self.classes :].clone()} if words.shape != log_probs.shape else {}
        )
