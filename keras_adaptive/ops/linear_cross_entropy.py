"""Cross-entropy of a linear layer without the array of its logits: the primitive of all word losses."""

import itertools
from typing import NamedTuple

import keras
from keras import ops

from keras_adaptive.backend.checks import check_shapes
from keras_adaptive.backend.custom_vjp import custom_vjp
from keras_adaptive.backend.ordering import with_dependencies
from keras_adaptive.ops.active_rows import over_active_rows
from keras_adaptive.ops.chunks import chunk_sizes, default_chunk_rows
from keras_adaptive.ops.logit_chunks import compiled_chunk, torch_chunk
from keras_adaptive.ops.word_ids import word_ids
from keras_adaptive.typing import Tensor


class Best(NamedTuple):
    """The best class of each row, found in the pass of the loss: constants, 0 for rows that the loss leaves out.

    Attributes:
        nll: (rows,) float32, the losses.
        log_probs: (rows,) float32, the largest log-probability of a class of the table.
        hits: (rows,) float32, 1 if the target is the first class of the table with this log-probability.
        extra_log_probs: (rows, extras) float32, the log-probabilities of the extra columns, or `None`.
    """

    nll: Tensor
    log_probs: Tensor
    hits: Tensor
    extra_log_probs: Tensor | None = None


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
    return cross_entropy_and_best(
        x, table, targets, weights, extra_logits, chunk_rows, bias, excluded=excluded, with_best=False
    )[0]


def cross_entropy_and_best(
    x, table, targets, weights, extra_logits=None, chunk_rows=None, bias=None, excluded=None, with_best=True
):
    """Computes `linear_cross_entropy` and, from the same logits, the best class of every row.

    Returns:
        `(sum, Best)`, or `(sum, None)` without `with_best`.
    """

    def forward(x, table, targets, weights, *rest):
        (nll, *best), gradients = _chunked(
            x, table, targets, weights, *split(rest), chunk_rows, with_gradients=True, with_best=with_best
        )
        total = ops.sum(nll * ops.cast(weights, "float32"))
        return (total, nll, *best) if with_best else (total,), gradients

    def backward(gradients, upstream):
        return _arrange(_scaled(gradients, upstream[0]), dtypes) + [None] * (excluded is not None)

    arguments, split, dtypes = _arguments(x, table, targets, weights, bias, extra_logits, excluded)
    total, *best = custom_vjp(forward, backward)(*arguments)
    return total, Best(*map(ops.stop_gradient, best)) if with_best else None


def sliced_cross_entropy(terms, table, boundaries, weights, bias=None, with_best=False):
    """Computes the sum of `linear_cross_entropy` over slices of one table, one slice after the other.

    The gradients of the slices are parts of one gradient of the table. Automatic differentiation of separate slices
    would pad the gradient of each slice to the size of the table and add them up.

    Args:
        terms: List of a dict for each slice: its `x`, `targets`, `extra_logits` and `chunk_rows`.
        table: Float tensor (classes, dim).
        boundaries: Increasing integers `(0, …, classes)`: the first class of each slice, then the number of classes.
        weights: Float tensor (rows,), the same for all slices.
        bias: Float tensor (classes,), by default none.
        with_best: Whether to find the best class of every row and slice.

    Returns:
        `(sum, list of a Best for each slice)`: a float32 scalar with the gradients of `linear_cross_entropy`, and an
        empty list without `with_best`.
    """

    def forward(*flat):
        shared, weights, rows = keras.tree.pack_sequence_as(arguments, flat)
        sums = [ops.empty(tensor.shape, "float32") for tensor in shared] if keras.config.backend() == "torch" else None
        total, of_slices, of_rows, bests = 0.0, [], [], []
        for (low, high), term, (x, targets, *extra) in zip(itertools.pairwise(boundaries), terms, rows, strict=True):
            table, *bias = (tensor[low:high] for tensor in shared)
            x, slice_sums = with_dependencies(x, total), sums and [tensor[low:high] for tensor in sums]
            inputs = x, table, targets, weights, bias, extra, (), term["chunk_rows"]
            (nll, *best), (of_x, *rest) = _chunked(*inputs, True, with_best, slice_sums)
            total = total + ops.sum(nll * weights)
            bests += [nll, *best] if with_best else []
            of_slices.append(rest[: len(shared)])
            of_rows += [of_x, *rest[len(shared) :]]
        of_shared = sums or [ops.concatenate(parts) for parts in zip(*of_slices)]
        return (total, *bests), (*of_shared, *of_rows)

    def backward(gradients, upstream):
        gradients = iter(_scaled(gradients, upstream[0]))
        return [dtype and ops.cast(next(gradients), dtype) for dtype in dtypes]

    of_terms = [_arguments(term["x"], table, term["targets"], weights, bias, term["extra_logits"]) for term in terms]
    (_, table, _, weights, *rest), split, _ = of_terms[0]
    rows = [[tensors[0], tensors[2], *split(tensors[4:])[1]] for tensors, split, _ in of_terms]
    arguments = [[table, *split(rest)[0]], weights, rows]
    flat = keras.tree.flatten(arguments)
    constants = {id(weights), *(id(tensors[1]) for tensors in rows)}
    dtypes = [None if id(tensor) in constants else _dtype(tensor) for tensor in flat]
    total, *bests = custom_vjp(forward, backward)(*flat)
    bests = map(ops.stop_gradient, bests)
    sizes = [3 + (term["extra_logits"] is not None) for term in terms] if with_best else []
    return total, [Best(*itertools.islice(bests, size)) for size in sizes]


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
        (nll,), _ = _chunked(x, table, targets, ones, *split(rest), chunk_rows, with_gradients=False)
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


def _chunked(x, table, targets, weights, bias, extra, excluded, chunk_rows, with_gradients, with_best=False, sums=None):
    """Returns `(losses, gradients)`: the nll (rows,), and optionally the other arrays of a `Best`; and optionally the
    gradients of Σ weight·nll with respect to x, table, bias and extra.

    Under torch the gradients of table and bias overwrite `sums`, if given.
    """
    columns = table.shape[0] + sum(logits.shape[-1] for logits in extra)
    active = (targets >= 0) & (targets < columns) & (weights != 0)
    if chunk_rows is None:
        chunk_rows = default_chunk_rows(x.shape[0], columns, table.shape[1] if with_gradients else 0)
    of_losses = (targets, targets, targets, *extra) if with_best else (targets,)
    of_rows, of_table = ((x, *extra), (table, *bias)) if with_gradients else ((), ())
    outputs = [ops.zeros(ops.shape(tensor), "float32") for tensor in (*of_losses, *of_rows)]
    empty = ops.empty if keras.config.backend() == "torch" else ops.zeros  # under torch the first chunk overwrites them
    carry = sums or [empty(ops.shape(tensor), "float32") for tensor in of_table]
    options = table, bias, len(extra), _dtype(x), with_gradients, with_best
    if keras.config.backend() == "torch":
        body = torch_chunk(*options)
    else:
        body = compiled_chunk(
            *options, axis=0 if keras.config.backend() == "jax" and chunk_rows < chunk_sizes().rows_first else 1
        )
    if keras.config.backend() == "torch" and carry and not active.any():  # no chunk will write
        carry = [tensor.zero_() for tensor in carry]
    inputs = x, targets, weights, *extra, *excluded
    outputs, carry = over_active_rows(body, active, inputs, outputs, carry, chunk_rows)
    losses, of_rows = outputs[: len(of_losses)], outputs[len(of_losses) :]
    return losses, (*of_rows[:1], *carry, *of_rows[1:])
