"""Cross-entropy of a linear layer without its logits: the primitive under every word loss."""

import keras
from keras import ops

from keras_adaptive.ops.custom_vjp import custom_vjp

CHUNK_BYTES = 32 * 2**20  # of float32 logits held at a time; measured on two CPU cores
MIN_CHUNK_ROWS, MAX_CHUNK_ROWS = 128, 1024


def linear_cross_entropy(x, table, targets, weights, extra_logits=None, chunk_rows=None):
    """The weighted sum of the cross-entropies of `softmax(x·tableᵀ)`, exactly and in one pass.

    Σ_r weights[r] · −log softmax([x[r]·tableᵀ ; extra_logits[r]])[targets[r]] over the rows whose target is a class
    and whose weight is not zero; every other row costs nothing. The rows are worked off in chunks, so that only one
    chunk's logits exist at a time, and the gradients are made in the same pass: the scalar that comes from above
    only scales them. Three matrix products in all, and nothing twice.

    The log-sum-exp and all sums are in float32 whatever the dtype. With float16 the products with the gradient of
    the logits run in float32 too, since float16 cannot hold a probability below 6e-8.

    Args:
        x: float tensor (rows, dim), the hidden vectors.
        table: float tensor (classes, dim), one vector per class, in the dtype of `x`.
        targets: int tensor (rows,). A target below 0, or not below `classes` plus the number of extra columns, takes
            its row out of the sum.
        weights: float tensor (rows,). They are constants: no gradient flows to them.
        extra_logits: float tensor (rows, extras) of further classes (the clusters of an adaptive softmax), whose ids
            follow those of the table.
        chunk_rows: rows a chunk. By default as many as make `CHUNK_BYTES` of logits, within
            `MIN_CHUNK_ROWS` and `MAX_CHUNK_ROWS`.

    Returns:
        A float32 scalar, in nats. Its gradients with respect to `x`, `table` and `extra_logits` are exact; second
        derivatives do not exist.
    """

    def forward(x, table, targets, weights, *extra):
        nll, gradients = _chunked(x, table, targets, weights, extra, chunk_rows, with_gradients=True)
        return ops.sum(nll * ops.cast(weights, "float32")), gradients

    def backward(gradients, upstream):
        return _arrange([upstream * gradient for gradient in gradients], dtypes)

    arguments, dtypes = _arguments(x, table, targets, weights, extra_logits)
    return custom_vjp(forward, backward)(*arguments)


def linear_nll(x, table, targets, extra_logits=None, chunk_rows=None):
    """The cross-entropy of every row, under the same bounds on memory: for evaluation.

    As `linear_cross_entropy`, but returns (rows,) float32, 0 for a row without a target among the classes. It can be
    differentiated, at the price of computing the logits once more: for training use the fused sum.
    """

    def forward(x, table, targets, *extra):
        ones = ops.ones(ops.shape(targets), "float32")
        nll, _ = _chunked(x, table, targets, ones, extra, chunk_rows, with_gradients=False)
        return nll, (x, table, targets, *extra)

    def backward(residuals, upstream):
        x, table, targets, *extra = residuals
        _, gradients = _chunked(x, table, targets, upstream, extra, chunk_rows, with_gradients=True)
        gradient_x, gradient_table, _, *rest = _arrange(gradients, dtypes)
        return [gradient_x, gradient_table, *rest]

    arguments, dtypes = _arguments(x, table, targets, None, extra_logits)
    return custom_vjp(forward, backward)(*arguments)


def _arguments(x, table, targets, weights, extra_logits):
    """The tensors that there are, and the dtypes of those that get a gradient."""
    x, table = ops.convert_to_tensor(x), ops.convert_to_tensor(table)
    tensors = [x, table, ops.cast(targets, "int32")]
    if weights is not None:
        tensors.append(ops.stop_gradient(ops.cast(weights, "float32")))
    if extra_logits is not None:
        tensors.append(ops.cast(extra_logits, "float32"))
    return tensors, [keras.backend.standardize_dtype(tensor.dtype) for tensor in (x, table)] + ["float32"]


def _arrange(gradients, dtypes):
    """Gradients of (x, table[, extra]) as those of (x, table, targets, weights[, extra]), in their dtypes."""
    gradient_x, gradient_table, *extra = (ops.cast(g, d) for g, d in zip(gradients, dtypes))
    return [gradient_x, gradient_table, None, None, *extra]


def _chunked(x, table, targets, weights, extra, chunk_rows, with_gradients):
    """Per-row nll (rows,) and, if asked, the gradients of Σ weight·nll with respect to x, table and extra."""
    classes = table.shape[0]
    columns = classes + (extra[0].shape[-1] if extra else 0)
    active = (targets >= 0) & (targets < columns) & (weights != 0)
    chunk_rows = chunk_rows or default_chunk_rows(columns)
    loop = _torch_loop if keras.config.backend() == "torch" else _while_loop
    return loop(x, table, targets, weights, extra, active, chunk_rows, with_gradients)


def default_chunk_rows(columns):
    """Rows whose float32 logits take `CHUNK_BYTES`, as a multiple of 128 within the bounds."""
    rows = CHUNK_BYTES // (4 * columns) // 128 * 128
    return min(max(rows, MIN_CHUNK_ROWS), MAX_CHUNK_ROWS)


def _chunk(x, table, targets, weights, extra, with_gradients):
    """One chunk, plainly: nll (rows,) and the gradients of Σ weight·nll with respect to x, table and extra."""
    classes = table.shape[0]
    logits = ops.cast(ops.matmul(x, ops.transpose(table)), "float32")  # (rows, classes)
    peak = ops.max(logits, axis=-1, keepdims=True)
    if extra:
        peak = ops.maximum(peak, ops.max(extra[0], axis=-1, keepdims=True))
    exps = [ops.exp(part - peak) for part in (logits, *extra)]
    total = sum(ops.sum(part, axis=-1, keepdims=True) for part in exps)
    picks = [targets, *(targets - classes for _ in extra)]
    hits = [(pick >= 0) & (pick < part.shape[-1]) for pick, part in zip(picks, (logits, *extra))]
    picks = [ops.where(hit, pick, 0)[:, None] for hit, pick in zip(hits, picks)]
    target_logit = sum(
        ops.where(hit[:, None], ops.take_along_axis(part, pick, axis=-1), 0.0)
        for part, pick, hit in zip((logits, *extra), picks, hits)
    )
    nll = (peak + ops.log(total) - target_logit)[:, 0]
    if not with_gradients:
        return nll, ()
    # d(weight·nll)/d(logits) = weight·(softmax − onehot)
    scale = weights[:, None] / total
    rows = ops.arange(ops.shape(x)[0])[:, None]
    slopes = [
        ops.scatter_update(
            part * scale, ops.concatenate([rows, pick], axis=-1), -ops.where(hit, weights, 0.0), reduction="add"
        )
        for part, pick, hit in zip(exps, picks, hits)
    ]
    product_dtype = "float32" if keras.backend.standardize_dtype(x.dtype) == "float16" else x.dtype
    slope, x, table = (ops.cast(tensor, product_dtype) for tensor in (slopes[0], x, table))
    return nll, (ops.matmul(slope, table), ops.matmul(ops.transpose(slope), x), *slopes[1:])


def _while_loop(x, table, targets, weights, extra, active, chunk_rows, with_gradients):
    """The chunks under TensorFlow and JAX: every shape static, the number of chunks a run-time value.

    The active rows are moved to the front and the loop ends behind them.
    """
    rows = ops.shape(x)[0]
    order = ops.argsort(ops.cast(~active, "int32"))  # rows by place: the active ones first
    place = ops.argsort(order)
    padding = -rows % chunk_rows
    order = ops.pad(order, [[0, padding]])
    live = ops.pad(ops.take(active, order[:rows], axis=0), [[0, padding]])

    def body(chunk, nll, gradients):
        start = chunk * chunk_rows
        index = ops.slice(order, [start], [chunk_rows])
        keep = ops.slice(live, [start], [chunk_rows])
        gathered = [ops.take(tensor, index, axis=0) for tensor in (x, targets, weights, *extra)]
        x_chunk, target, weight, *extra_chunk = gathered
        weight = ops.where(keep, weight, 0.0)
        chunk_nll, chunk_gradients = _chunk(x_chunk, table, target, weight, extra_chunk, with_gradients)
        nll = ops.slice_update(nll, [start], ops.where(keep, chunk_nll, 0.0))
        gradients = tuple(
            total + ops.cast(part, "float32")
            if number == 1
            else ops.slice_update(total, [start, 0], ops.cast(part, "float32"))
            for number, (total, part) in enumerate(zip(gradients, chunk_gradients))
        )
        return chunk + 1, nll, gradients

    # Counted in steps of 1: XLA takes a constant bound that the step does not divide for a loop of no steps.
    chunks = (ops.sum(ops.cast(active, "int32")) + chunk_rows - 1) // chunk_rows
    nll = ops.zeros((rows + padding,), "float32")
    gradients = ()
    if with_gradients:
        shapes = [(rows + padding, x.shape[1]), table.shape, *((rows + padding, e.shape[1]) for e in extra)]
        gradients = tuple(ops.zeros(shape, "float32") for shape in shapes)
    state = (ops.zeros((), "int32"), nll, gradients)
    _, nll, gradients = ops.while_loop(lambda chunk, *_: chunk < chunks, body, state)
    back = [nll, *gradients]
    back = [part if number == 2 else ops.take(part, place, axis=0) for number, part in enumerate(back)]
    return back[0], tuple(back[1:])


def _torch_loop(x, table, targets, weights, extra, active, chunk_rows, with_gradients):
    """The chunks under eager torch: shapes may follow the data, and sums are made in place."""
    import torch

    rows = active.nonzero()[:, 0]
    nll = x.new_zeros(x.shape[0], dtype=torch.float32)
    gradients = ()
    if with_gradients:
        gradients = tuple(torch.zeros_like(tensor, dtype=torch.float32) for tensor in (x, table, *extra))
    for index in rows.split(chunk_rows) if len(rows) else ():
        arguments = [tensor[index] for tensor in (x, targets, weights, *extra)]
        chunk_nll, parts = _chunk(arguments[0], table, *arguments[1:3], arguments[3:], with_gradients)
        nll[index] = chunk_nll
        for number, (total, part) in enumerate(zip(gradients, parts)):
            if number == 1:
                total += part
            else:
                total[index] = part.float()
    return nll, gradients
