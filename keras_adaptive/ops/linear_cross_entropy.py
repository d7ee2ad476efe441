"""Cross-entropy of a linear layer without the array of its logits: the primitive of all word losses."""

import itertools
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_adaptive.backend.checks import check_shapes
from keras_adaptive.backend.custom_vjp import custom_vjp
from keras_adaptive.backend.ordering import with_dependencies
from keras_adaptive.backend.products import adds_in_place
from keras_adaptive.ops.active_rows import over_active_rows
from keras_adaptive.ops.chunks import chunk_sizes, default_chunk_rows
from keras_adaptive.ops.logit_chunks import Inputs, TorchChunk, Wanted, compiled_chunk
from keras_adaptive.ops.word_ids import word_ids
from keras_adaptive.typing import Tensor

DIFFERENTIABLE = ("x", "table", "bias", "extra_logits")
OF_ROWS = ("x", "targets", "weights", "extra_logits", "excluded")  # the inputs that have a value per row


class RowResults(NamedTuple):
    """What the pass of the loss knows of each row: constants, 0 for rows that the loss leaves out.

    Attributes:
        nll: (rows,) float32, the cross-entropies.
        log_totals: (rows,) float32, the logarithms of the sums of exp(logit); `None` for the plain cross-entropy.
        best_log_probs: (rows,) float32, the largest log-probability of a class of the table, if it was asked for.
        hits: (rows,) float32, 1 if the target is the first class of the table with this log-probability.
        extra_log_probs: (rows, extras) float32, the log-probabilities of the extra columns.
    """

    nll: Tensor
    log_totals: Tensor | None = None
    best_log_probs: Tensor | None = None
    hits: Tensor | None = None
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
    loss: Any = None,
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
        loss: What a row of logits is worth, such as a `losses.CrossEntropy` with label smoothing. By default the
            cross-entropy.

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
    inputs = checked_inputs(x, targets, weights, extra_logits, excluded, table, bias)
    return total_and_rows(inputs, chunk_rows, Wanted.of(loss))[0]


def total_and_rows(inputs, chunk_rows, wanted):
    """Computes `linear_cross_entropy` of `checked_inputs`, and the `RowResults` of the same pass."""
    names, tensors, dtypes = _given(inputs, wanted.table_gradients)
    found = _results(inputs, wanted)

    def forward(*tensors):
        given = Inputs(**dict(zip(names, tensors)))
        results, gradients = _chunked(given, chunk_rows, wanted)
        total = _total(results, given.weights)
        return (total, *map(results.get, found)), tuple(gradients[name] for name in names if name in gradients)

    def backward(gradients, upstream):
        return _arranged(_scaled(gradients, upstream[0]), dtypes)

    total, *results = custom_vjp(forward, backward)(*tensors)
    return total, RowResults(**dict(zip(found, map(ops.stop_gradient, results))))


def sliced_total_and_rows(slices, boundaries, chunk_rows, wanted):
    """Computes the sum of `linear_cross_entropy` over slices of one table, and a list of the `RowResults` of each.

    The gradients of the slices are parts of one gradient of the table. Automatic differentiation of separate slices
    would pad the gradient of each slice to the size of the table and add them up. `slices` has the `Inputs` of each, of
    which the first has the whole table, bias and weights; `boundaries` has the first class of each, and the end.
    """
    shared, own = ("weights", "table", "bias"), ("x", "targets", "extra_logits")
    groups = [slices[0]._replace(**dict.fromkeys(own)), *(part._replace(**dict.fromkeys(shared)) for part in slices)]
    names, tensors, dtypes = zip(*(_given(group, wanted.table_gradients) for group in groups))
    ends = list(itertools.accumulate(map(len, names)))
    found = [_results(part, wanted) for part in slices]

    def forward(*tensors):
        whole, *parts = (
            dict(zip(of_group, tensors[end - len(of_group) : end])) for of_group, end in zip(names, ends, strict=True)
        )
        weights = whole.pop("weights")
        learned = whole if wanted.table_gradients else {}
        sums = {name: ops.empty(tensor.shape, "float32") for name, tensor in learned.items()} if adds_in_place() else {}
        total, values, of_whole, of_parts = 0.0, [], [], []
        for place, (low, high) in enumerate(itertools.pairwise(boundaries)):
            of_slice = {name: tensor[low:high] for name, tensor in whole.items()}
            given = Inputs(weights=weights, **of_slice, **parts[place])
            given = given._replace(x=with_dependencies(given.x, total))
            of_sums = {name: tensor[low:high] for name, tensor in sums.items()}
            results, gradients = _chunked(given, chunk_rows[place], wanted, of_sums)
            total = total + _total(results, weights)
            values += map(results.get, found[place])
            of_whole.append([gradients[name] for name in learned])
            of_parts += [gradients[name] for name in parts[place] if name in gradients]
        of_whole = list(sums.values()) or [ops.concatenate(each) for each in zip(*of_whole)]
        return (total, *values), (*of_whole, *of_parts)

    def backward(gradients, upstream):
        return _arranged(_scaled(gradients, upstream[0]), itertools.chain(*dtypes))

    total, *values = custom_vjp(forward, backward)(*itertools.chain(*tensors))
    values = map(ops.stop_gradient, values)
    return total, [RowResults(**dict(zip(names, values))) for names in found]


def linear_nll(
    x: Tensor,
    table: Tensor,
    targets: Tensor,
    extra_logits: Tensor | None = None,
    chunk_rows: int | None = None,
    bias: Tensor | None = None,
    soft_cap: float | None = None,
) -> Tensor:
    """Computes the cross-entropy of every row, in chunks like `linear_cross_entropy`; meant for evaluation.

    The gradient computes the logits again: use `linear_cross_entropy` for training.

    Args:
        x, table, targets, extra_logits, chunk_rows, bias: As in `linear_cross_entropy`.
        soft_cap: Bound c of the logits, which become c · tanh(logits / c). Optional.

    Returns:
        (rows,) float32, in nats; 0 for a row whose target is not a class.

    Example:

    >>> x, table = np.zeros((3, 8), "float32"), np.ones((100, 8), "float32")
    >>> linear_nll(x, table, targets=np.array([4, 99, -1])).shape
    (3,)
    """

    inputs = checked_inputs(x, targets, ops.ones(ops.shape(targets), "float32"), extra_logits, None, table, bias)
    names, tensors, dtypes = _given(inputs)

    def forward(*tensors):
        results, _ = _chunked(Inputs(**dict(zip(names, tensors))), chunk_rows, Wanted(None, soft_cap, gradients=False))
        return results["nll"], tensors

    def backward(tensors, upstream):
        given = Inputs(**dict(zip(names, tensors)))._replace(weights=upstream)
        _, gradients = _chunked(given, chunk_rows, Wanted(None, soft_cap))
        return _arranged([gradients[name] for name in names if name in gradients], dtypes)

    return custom_vjp(forward, backward)(*tensors)


def checked_inputs(x, targets, weights, extra_logits, excluded, table, bias):
    """Returns the arguments of `linear_cross_entropy` as `Inputs`: tensors of shapes that fit together."""
    check_shapes(
        x=(x, "rows dim"),
        table=(table, "classes dim"),
        targets=(targets, "rows"),
        weights=(weights, "rows"),
        extra_logits=(extra_logits, "rows extras"),
        bias=(bias, "classes"),
        excluded=(excluded, "rows"),
    )
    x, table = ops.convert_to_tensor(x), ops.convert_to_tensor(table)
    extra_logits, weights, bias = (
        None if tensor is None else ops.cast(ops.convert_to_tensor(tensor), "float32")
        for tensor in (extra_logits, weights, bias)
    )
    columns = table.shape[0] + (0 if extra_logits is None else extra_logits.shape[-1])
    targets, excluded = (
        None if ids is None else ops.convert_to_tensor(word_ids(ids, columns)) for ids in (targets, excluded)
    )
    return Inputs(x, targets, weights, extra_logits, excluded, table, bias)


def _given(inputs, table_gradients=True):
    """Returns the names of the inputs that are given, their tensors, and the dtypes of their gradients or `None`."""
    learned = DIFFERENTIABLE if table_gradients else ("x", "extra_logits")
    given = {name: tensor for name, tensor in inputs._asdict().items() if tensor is not None}
    dtypes = [
        keras.backend.standardize_dtype(tensor.dtype) if name in learned else None for name, tensor in given.items()
    ]
    return list(given), list(given.values()), dtypes


def _results(inputs, wanted):
    """Returns the names of the `RowResults` that a pass finds."""
    of_loss = ["log_totals"] if wanted.loss is not None else []
    best = ["best_log_probs", "hits"] if wanted.best else []
    return ["nll", *of_loss, *best, *(["extra_log_probs"] if best and inputs.extra_logits is not None else [])]


def _total(results, weights):
    return ops.sum(results.get("losses", results["nll"]) * weights)


def _scaled(gradients, factor):
    """Returns the gradients times a scalar; skips a factor of 1 under eager torch, as compilers do."""
    if adds_in_place() and factor.device.type == "cpu" and factor == 1:
        return gradients
    return [factor * gradient for gradient in gradients]


def _arranged(gradients, dtypes):
    """Returns the gradients in their dtypes, and `None` where there is no dtype."""
    gradients = iter(gradients)
    return [dtype and ops.cast(next(gradients), dtype) for dtype in dtypes]


def _chunked(inputs, chunk_rows, wanted, sums=None):
    """Returns `(results, gradients)`, two dicts: arrays per row by the names of `RowResults` (and `losses`), and the
    gradients of Σ weight·loss by the names of the `Inputs`.

    Under torch the gradients of table and bias overwrite `sums`, if given.
    """
    table, bias, extra = inputs.table, inputs.bias, inputs.extra_logits
    columns = table.shape[0] + (0 if extra is None else extra.shape[-1])
    active = (inputs.targets >= 0) & (inputs.targets < columns) & (inputs.weights != 0)
    if chunk_rows is None:
        chunk_rows = default_chunk_rows(inputs.x.shape[0], columns, table.shape[1] if wanted.gradients else 0)
    names = [name for name in OF_ROWS if getattr(inputs, name) is not None]
    like = {name: extra if name == "extra_log_probs" else inputs.weights for name in _results(inputs, wanted)}
    like |= {"losses": inputs.weights} if wanted.loss is not None else {}
    if wanted.gradients:
        like |= {name: getattr(inputs, name) for name in names if name in DIFFERENTIABLE}
        if not sums and wanted.table_gradients:
            empty = ops.empty if adds_in_place() else ops.zeros  # the first chunk overwrites them
            of_table = {"table": table} | ({} if bias is None else {"bias": bias})
            sums = {name: empty(ops.shape(tensor), "float32") for name, tensor in of_table.items()}
        if sums and adds_in_place() and not active.any():  # no chunk will write
            sums = {name: tensor.zero_() for name, tensor in sums.items()}
    sums = sums or {}
    options = table, bias, keras.backend.standardize_dtype(inputs.x.dtype), wanted
    if adds_in_place():
        chunk = TorchChunk(*options)
    else:
        rows_first = keras.config.backend() == "jax" and chunk_rows < chunk_sizes().rows_first
        chunk = compiled_chunk(*options, axis=0 if rows_first else 1)

    def body(tensors, live, carry):
        results, carry = chunk(Inputs(**dict(zip(names, tensors))), live, dict(zip(sums, carry)))
        return [results[name] for name in like], [carry[name] for name in sums]

    tensors = [getattr(inputs, name) for name in names]
    outputs = [ops.zeros(ops.shape(tensor), "float32") for tensor in like.values()]
    outputs, carry = over_active_rows(body, active, tensors, outputs, list(sums.values()), chunk_rows)
    results = dict(zip(like, outputs))
    gradients = {name: results.pop(name) for name in DIFFERENTIABLE if name in results}
    return results, gradients | dict(zip(sums, carry))
