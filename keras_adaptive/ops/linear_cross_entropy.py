"""Cross-entropy of a linear layer without the array of its logits: the primitive of all word losses."""

import itertools

import keras
from keras import ops

from keras_adaptive.backend.checks import check_shapes
from keras_adaptive.backend.custom_vjp import custom_vjp
from keras_adaptive.backend.ordering import with_dependencies
from keras_adaptive.ops.active_rows import over_active_rows
from keras_adaptive.ops.chunks import chunk_sizes, default_chunk_rows
from keras_adaptive.ops.word_ids import word_ids
from keras_adaptive.typing import Tensor

LEAST_SHARE = 1e-30  # lower bound of the probability of all classes, a divisor; too small to affect a gradient
EXCLUDED = 1e30  # subtracted from the logit of an excluded class; finite, so that no difference of two is NaN


def linear_cross_entropy(
    x: Tensor,
    table: Tensor,
    targets: Tensor,
    weights: Tensor,
    extra_logits: Tensor | None = None,
    chunk_rows: int | None = None,
    bias: Tensor | None = None,
    excluded: Tensor | None = None,
) -> Tensor:
    """Computes the weighted sum of the cross-entropies of `softmax(x·tableᵀ + bias)`, exactly and in one pass.

    The sum Σ_r weights[r] · −log softmax([x[r]·tableᵀ + bias ; extra_logits[r]])[targets[r]] is over the rows whose
    target is a class and whose weight is not zero; all other rows cost nothing. The rows are processed in chunks, so
    that only one chunk's logits exist at a time. The same pass computes the gradients, which the upstream gradient only
    scales. Loss and gradients take three matrix products in total.

    The log-sum-exp and all sums are in float32 whatever the dtype. With float16 the products with the gradient of
    the logits run in float32 too, since float16 cannot hold a probability below 6e-8.

    Args:
        x: Float tensor (rows, dim), the hidden states.
        table: Float tensor (classes, dim), one vector per class, in the dtype of `x` or in float32. Its gradient has
            the dtype of the table, so that a float32 table loses no digits to a narrower `x`.
        targets: Int tensor (rows,). A target below 0, or not below `classes` plus the number of extra columns,
            excludes its row from the sum.
        weights: Float tensor (rows,). They are constants: no gradient flows to them.
        extra_logits: Float tensor (rows, extras), the logits of further classes (such as the tails of an adaptive
            softmax), whose ids follow the ids of the table. Optional.
        chunk_rows: Number of rows per chunk, by default `default_chunk_rows`.
        bias: Float tensor (classes,), added to the logits of the table in float32. Optional.
        excluded: Int tensor (rows,), a class of the table other than the target that the row leaves out of its
            softmax, or −1 for none. Optional.

    Returns:
        A float32 scalar, in nats, with exact first derivatives by `x`, `table`, `extra_logits` and `bias`.

    Raises:
        ValueError: If the shapes do not fit together.

    Example:

    >>> x = np.zeros((3, 8), "float32")  # all classes have the same probability
    >>> table = np.random.normal(size=(100, 8)).astype("float32")
    >>> loss = linear_cross_entropy(x, table, targets=np.array([4, 99, -1]), weights=np.ones(3))
    >>> round(float(loss), 3)  # 2 · log(100), since the third row has no target
    9.21
    """

    def forward(x, table, targets, weights, *rest):
        nll, gradients = _chunked(x, table, targets, weights, *split(rest), chunk_rows, with_gradients=True)
        return ops.sum(nll * ops.cast(weights, "float32")), gradients

    def backward(gradients, upstream):
        return _arrange(_scaled(gradients, upstream), dtypes) + [None] * (excluded is not None)

    arguments, split, dtypes = _arguments(x, table, targets, weights, bias, extra_logits, excluded)
    return custom_vjp(forward, backward)(*arguments)


def sliced_cross_entropy(terms, table, boundaries, weights, bias=None):
    """Computes the sum of `linear_cross_entropy` over slices of one table, one slice after the other.

    The gradients of the slices are parts of one gradient of the table. Automatic differentiation of separate slices
    would pad the gradient of each slice to the size of the table and add them up.

    Args:
        terms: List of a dict for each slice: its `x`, `targets`, `extra_logits` and `chunk_rows`.
        table: Float tensor (classes, dim).
        boundaries: Increasing integers `(0, …, classes)`: the first class of each slice, then the number of classes.
        weights: Float tensor (rows,), the same for all slices.
        bias: Float tensor (classes,), by default none.

    Returns:
        A float32 scalar with the gradients of `linear_cross_entropy`.
    """

    def forward(*flat):
        shared, weights, rows = keras.tree.pack_sequence_as(arguments, flat)
        sums = [ops.empty(tensor.shape, "float32") for tensor in shared] if keras.config.backend() == "torch" else None
        total, of_slices, of_rows = 0.0, [], []
        for (low, high), term, (x, targets, *extra) in zip(itertools.pairwise(boundaries), terms, rows, strict=True):
            table, *bias = (tensor[low:high] for tensor in shared)
            x, slice_sums = with_dependencies(x, total), sums and [tensor[low:high] for tensor in sums]
            inputs = x, table, targets, weights, bias, extra, (), term["chunk_rows"]
            nll, (of_x, *rest) = _chunked(*inputs, with_gradients=True, sums=slice_sums)
            total = total + ops.sum(nll * weights)
            of_slices.append(rest[: len(shared)])
            of_rows += [of_x, *rest[len(shared) :]]
        of_shared = sums or [ops.concatenate(parts) for parts in zip(*of_slices)]
        return total, (*of_shared, *of_rows)

    def backward(gradients, upstream):
        gradients = iter(_scaled(gradients, upstream))
        return [dtype and ops.cast(next(gradients), dtype) for dtype in dtypes]

    of_terms = [_arguments(term["x"], table, term["targets"], weights, bias, term["extra_logits"]) for term in terms]
    (_, table, _, weights, *rest), split, _ = of_terms[0]
    rows = [[tensors[0], tensors[2], *split(tensors[4:])[1]] for tensors, split, _ in of_terms]
    arguments = [[table, *split(rest)[0]], weights, rows]
    flat = keras.tree.flatten(arguments)
    constants = {id(weights), *(id(tensors[1]) for tensors in rows)}
    dtypes = [None if id(tensor) in constants else _dtype(tensor) for tensor in flat]
    return custom_vjp(forward, backward)(*flat)


def linear_nll(
    x: Tensor,
    table: Tensor,
    targets: Tensor,
    extra_logits: Tensor | None = None,
    chunk_rows: int | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Computes the cross-entropy of every row, in chunks like `linear_cross_entropy`; meant for evaluation.

    The gradient computes the logits again: use `linear_cross_entropy` for training.

    Args:
        x, table, targets, extra_logits, chunk_rows, bias: As in `linear_cross_entropy`.

    Returns:
        (rows,) float32, in nats; 0 for a row whose target is not a class.

    Example:

    >>> x, table = np.zeros((3, 8), "float32"), np.ones((100, 8), "float32")
    >>> linear_nll(x, table, targets=np.array([4, 99, -1])).shape
    (3,)
    """

    def forward(x, table, targets, *rest):
        ones = ops.ones(ops.shape(targets), "float32")
        nll, _ = _chunked(x, table, targets, ones, *split(rest), chunk_rows, with_gradients=False)
        return nll, (x, table, targets, *rest)

    def backward(residuals, upstream):
        x, table, targets, *rest = residuals
        _, gradients = _chunked(x, table, targets, upstream, *split(rest), chunk_rows, with_gradients=True)
        gradient_x, gradient_table, _, *rest = _arrange(gradients, dtypes)
        return [gradient_x, gradient_table, *rest]

    arguments, split, dtypes = _arguments(x, table, targets, None, bias, extra_logits)
    return custom_vjp(forward, backward)(*arguments)


def _arguments(x, table, targets, weights, bias, extra_logits, excluded=None):
    """Returns the arguments as tensors, a function that splits the last of them, and the dtypes of all gradients.

    The last tensors are bias, extra logits and excluded classes. The function returns three sequences of one tensor or
    none.
    """
    check_shapes(
        x=(x, "rows dim"),
        table=(table, "classes dim"),
        targets=(targets, "rows"),
        weights=(weights, "rows"),
        extra_logits=(extra_logits, "rows extras"),
        bias=(bias, "classes"),
        excluded=(excluded, "rows"),
    )
    x, table, *extra = (ops.convert_to_tensor(tensor) for tensor in (x, table, extra_logits) if tensor is not None)
    columns = table.shape[0] + sum(logits.shape[-1] for logits in extra)
    tensors = [x, table, ops.convert_to_tensor(word_ids(targets, columns))]
    tensors += [ops.cast(tensor, "float32") for tensor in (weights, bias, *extra) if tensor is not None]
    tensors += [] if excluded is None else [ops.convert_to_tensor(word_ids(excluded, columns))]
    first, second = itertools.accumulate(int(tensor is not None) for tensor in (bias, extra_logits))
    dtypes = [_dtype(x), _dtype(table), "float32", "float32"]
    return tensors, lambda rest: (rest[:first], rest[first:second], rest[second:]), dtypes


def _scaled(gradients, factor):
    """Returns the gradients times a scalar; skips a factor of 1 under eager torch, as compilers do."""
    if keras.config.backend() == "torch" and factor.device.type == "cpu" and factor == 1:
        return gradients
    return [factor * gradient for gradient in gradients]


def _arrange(gradients, dtypes):
    """Casts gradients of (x, table, …) and arranges them as (x, table, targets, weights, …)."""
    gradient_x, gradient_table, *rest = (ops.cast(g, d) for g, d in zip(gradients, dtypes))
    return [gradient_x, gradient_table, None, None, *rest]


def _dtype(tensor):
    return keras.backend.standardize_dtype(tensor.dtype)


def _chunked(x, table, targets, weights, bias, extra, excluded, chunk_rows, with_gradients, sums=None):
    """Returns the nll (rows,) and optionally the gradients of Σ weight·nll with respect to x, table, bias and extra.

    Under torch the gradients of table and bias overwrite `sums`, if given.
    """
    columns = table.shape[0] + sum(logits.shape[-1] for logits in extra)
    active = (targets >= 0) & (targets < columns) & (weights != 0)
    if chunk_rows is None:
        chunk_rows = default_chunk_rows(x.shape[0], columns, table.shape[1] if with_gradients else 0)
    of_rows, of_table = ((targets, x, *extra), (table, *bias)) if with_gradients else ((targets,), ())
    outputs = [ops.zeros(ops.shape(tensor), "float32") for tensor in of_rows]
    empty = ops.empty if keras.config.backend() == "torch" else ops.zeros  # under torch the first chunk overwrites them
    carry = sums or [empty(ops.shape(tensor), "float32") for tensor in of_table]
    dtype = _dtype(x)
    if keras.config.backend() == "torch":
        body = _torch_chunk(table, bias, len(extra), dtype, with_gradients)
    else:
        axis = 0 if keras.config.backend() == "jax" and chunk_rows < chunk_sizes().rows_first else 1
        body = _chunk(table, bias, len(extra), dtype, with_gradients, axis)
    if keras.config.backend() == "torch" and carry and not active.any():  # no chunk will write
        carry = [tensor.zero_() for tensor in carry]
    inputs = x, targets, weights, *extra, *excluded
    outputs, carry = over_active_rows(body, active, inputs, outputs, carry, chunk_rows)
    nll, *of_rows = outputs
    return nll, (*of_rows[:1], *carry, *of_rows[1:])


def _chunk(table, bias, extras, dtype, with_gradients, axis):
    """Returns the function of one chunk for `over_active_rows`.

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
        if not with_gradients:
            return [nll], carry
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
        return [nll, of_x, *of_extra], [of_table, *of_bias]

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

    def subtract_at(self, matrix, amounts):
        """Returns the matrix with `amounts`, a number or (rows,), subtracted from the values of the columns."""
        places = [ops.arange(ops.shape(self.columns)[0]), self.columns]
        places = ops.stack(places if self.axis else places[::-1], axis=-1)
        return ops.scatter_update(matrix, places, ops.where(self.inside, -amounts, 0.0), reduction="add")


def _torch_chunk(table, bias, extras, dtype, with_gradients):
    """Works as `_chunk`, but in place: one buffer holds the logits, then the probabilities, then the gradients.

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
        nll, of_extra = [], [[] for _ in extra]
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
            if not with_gradients:
                continue
            logits.exp_().scatter_add_(1, target[block], logits.new_full((1, 1), -1.0).expand(len(logits), 1))
            for total in carry[1:]:
                total.addmv_(words.T, weight[block, 0], beta=1 if start else kept)
            for parts in of_extra:
                parts.append(weight[block] * logits[:, classes:])
            if wide.dtype != torch.float32:
                products[block] = words
        nll = torch.cat(nll)
        if not with_gradients:
            return [nll], carry
        products = words if wide.dtype == torch.float32 else products  # the gradients of the logits
        scaled = (weight * x).to(wide.dtype)
        if wide.dtype == torch.float32:
            carry[0].addmm_(products.T, scaled, beta=kept)
        elif kept:
            carry[0].add_(products.T @ scaled)
        else:
            carry[0].copy_(products.T @ scaled)
        return [nll, weight * (products @ wide), *map(torch.cat, of_extra)], carry

    return body
