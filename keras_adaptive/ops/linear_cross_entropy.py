"""Cross-entropy of a linear layer without its logits: the primitive of every word loss."""

import itertools

import keras
from keras import ops

from keras_adaptive.backend.checks import check_same_shape
from keras_adaptive.backend.custom_vjp import custom_vjp
from keras_adaptive.backend.ordering import with_dependencies
from keras_adaptive.ops.active_rows import over_active_rows

CHUNK_BYTES = {"tensorflow": 40 * 2**20, "jax": 60 * 2**20, "torch": 64 * 2**20}  # measured on two CPU cores
MIN_CHUNK_ROWS, MAX_CHUNK_ROWS = 16, 1024
TAIL_CHUNKS = 32  # a tail's chunk is at most this fraction of the batch, since few of its rows belong to the tail
LEAST_SHARE = 1e-30  # Least probability of all classes together: not 0 as a divisor, too small for a gradient.
EXCLUDED = 1e30  # is subtracted from a logit that does not count: finite, so that no difference of two is NaN
ROWS_FIRST = 128  # rows of a chunk from which XLA's products on a CPU are faster with the rows of the logits first


def linear_cross_entropy(x, table, targets, weights, extra_logits=None, chunk_rows=None, bias=None, excluded=None):
    """Computes the weighted sum of the cross-entropies of `softmax(x·tableᵀ + bias)`, exactly and in one pass.

    The sum Σ_r weights[r] · −log softmax([x[r]·tableᵀ + bias ; extra_logits[r]])[targets[r]] is over the rows whose
    target is a class and whose weight is not zero; every other row costs nothing. The rows are processed in chunks, so
    that only one chunk's logits exist at a time. The same pass computes the gradients, which the upstream gradient only
    scales. It takes three matrix products, none of them twice.

    The log-sum-exp and all sums are in float32 whatever the dtype. With float16 the products with the gradient of
    the logits run in float32 too, since float16 cannot hold a probability below 6e-8.

    Args:
        x: Float tensor (rows, dim), the hidden states.
        table: Float tensor (classes, dim), one vector per class, in the dtype of `x` or in float32; its gradient is
            in its own dtype, so that a float32 table loses no digits to a narrower `x`.
        targets: Int tensor (rows,). A target below 0, or not below `classes` plus the number of extra columns,
            excludes its row from the sum.
        weights: Float tensor (rows,). They are constants: no gradient flows to them.
        extra_logits: Float tensor (rows, extras) of further classes (the clusters of an adaptive softmax), whose ids
            follow the ids of the table.
        chunk_rows: Number of rows of a chunk, by default `default_chunk_rows`.
        bias: Float tensor (classes,), added to the logits of the table in float32; by default none.
        excluded: Int tensor (rows,): the class of the table, other than the target, that a row leaves out of its
            softmax, or −1 for none. By default no row leaves one out.

    Returns:
        A float32 scalar, in nats. Its gradients with respect to `x`, `table`, `extra_logits` and `bias` are exact;
        second derivatives do not exist.
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

    The gradients of the slices are parts of one gradient of the table. Slices that are taken from the table one by one
    would each get a gradient of its size, padded with zeros, and the sum of these.

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
        whole, weights, own = keras.tree.pack_sequence_as(arguments, flat)
        sums = [ops.empty(one.shape, "float32") for one in whole] if keras.config.backend() == "torch" else None
        total, of_slices, of_own = 0.0, [], []
        for (low, high), term, (x, targets, *extra) in zip(itertools.pairwise(boundaries), terms, own, strict=True):
            table, *bias = (one[low:high] for one in whole)
            x, own_sums = with_dependencies(x, total), sums and [one[low:high] for one in sums]
            inputs = x, table, targets, weights, bias, extra, (), term["chunk_rows"]
            nll, (of_x, *rest) = _chunked(*inputs, with_gradients=True, sums=own_sums)
            total = total + ops.sum(nll * weights)
            of_slices.append(rest[: len(whole)])
            of_own += [of_x, *rest[len(whole) :]]
        of_whole = sums or [ops.concatenate(parts) for parts in zip(*of_slices)]
        return total, (*of_whole, *of_own)

    def backward(gradients, upstream):
        gradients = iter(_scaled(gradients, upstream))
        return [dtype and ops.cast(next(gradients), dtype) for dtype in dtypes]

    given = [_arguments(term["x"], table, term["targets"], weights, bias, term["extra_logits"]) for term in terms]
    (_, table, _, weights, *rest), split, _ = given[0]
    own = [[tensors[0], tensors[2], *split(tensors[4:])[1]] for tensors, split, _ in given]
    arguments = [[table, *split(rest)[0]], weights, own]
    flat = keras.tree.flatten(arguments)
    constant = [weights, *(tensors[1] for tensors in own)]
    dtypes = [None if any(one is other for other in constant) else _dtype(one) for one in flat]
    return custom_vjp(forward, backward)(*flat)


def linear_nll(x, table, targets, extra_logits=None, chunk_rows=None, bias=None):
    """Returns the cross-entropy of every row, with the same bound on memory: for evaluation.

    The arguments are the same as in `linear_cross_entropy`, without `weights`. The result is (rows,) float32, 0 for a
    row whose target is no class. Differentiating it computes the logits once more: for training use the fused sum.
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
    """Returns the given tensors, a function that splits the last of them, and the dtypes of all gradients.

    Bias, extra logits and excluded classes come last. The function returns them as three sequences of one tensor, or of
    none.
    """
    x, table = ops.convert_to_tensor(x), ops.convert_to_tensor(table)
    tensors = [x, table, ops.cast(targets, "int32")]
    if weights is not None:
        tensors.append(ops.stop_gradient(ops.cast(weights, "float32")))
    if bias is not None:
        check_same_shape(bias, table.shape[:1], "bias", "the classes")
        tensors.append(ops.cast(bias, "float32"))
    if extra_logits is not None:
        tensors.append(ops.cast(extra_logits, "float32"))
    if excluded is not None:
        check_same_shape(excluded, x.shape[:1], "excluded", "the rows")
        tensors.append(ops.cast(excluded, "int32"))
    first = 0 if bias is None else 1
    second = first + (0 if extra_logits is None else 1)
    dtypes = [_dtype(x), _dtype(table), "float32", "float32"]
    return tensors, lambda rest: (rest[:first], rest[first:second], rest[second:]), dtypes


def _scaled(gradients, factor):
    """Returns the gradients times a scalar. Compilers drop a product with 1; eager torch skips it here."""
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
    """Returns the nll (rows,) and, if asked, the gradients of Σ weight·nll with respect to x, table, bias and extra.

    Under torch the gradients of table and bias are written into `sums`, if given; their values before do not matter.
    """
    columns = table.shape[0] + sum(logits.shape[-1] for logits in extra)
    active = (targets >= 0) & (targets < columns) & (weights != 0)
    if chunk_rows is None:
        chunk_rows = default_chunk_rows(x.shape[0], columns, table.shape[1] if with_gradients else 0)
    of_rows, of_table = ((targets, x, *extra), (table, *bias)) if with_gradients else ((targets,), ())
    outputs = [ops.zeros(ops.shape(one), "float32") for one in of_rows]
    carry = sums or [ops.zeros(ops.shape(one), "float32") for one in of_table]
    dtype = _dtype(x)
    if keras.config.backend() == "torch":
        body = _torch_chunk(table, bias, len(extra), dtype, with_gradients)
    else:
        axis = 0 if keras.config.backend() == "jax" and chunk_rows < ROWS_FIRST else 1
        body = _chunk(table, bias, len(extra), dtype, with_gradients, axis)
    if sums and not active.any():  # no chunk will write
        carry = [one.zero_() for one in sums]
    inputs = x, targets, weights, *extra, *excluded
    outputs, carry = over_active_rows(body, active, inputs, outputs, carry, chunk_rows)
    nll, *of_rows = outputs
    return nll, (*of_rows[:1], *carry, *of_rows[1:])


def default_chunk_rows(rows, columns, dim=0):
    """Returns the number of rows whose float32 logits take the `CHUNK_BYTES` of the backend, evened over the batch.

    TensorFlow holds more arrays of that size at a time than the other backends. A chunk has at least `MIN_CHUNK_ROWS`,
    since smaller matrix products are slow, and at most `MAX_CHUNK_ROWS`. Outside of torch each chunk computes a
    gradient (columns, dim) that is added to a sum in a pass of its own. Such a chunk has at least dim / 2 rows:
    otherwise that pass would take too large a part of the time, and this array needs more memory than the logits.
    Finally the batch (its `rows`, None if unknown) is cut into equal chunks of a multiple of 8, because with static
    shapes a partial last chunk costs as much as a full one.
    """
    backend = keras.config.backend()
    least = MIN_CHUNK_ROWS if backend == "torch" else max(MIN_CHUNK_ROWS, dim // 2)
    most = min(max(CHUNK_BYTES[backend] // (4 * columns), least), MAX_CHUNK_ROWS)
    if rows:
        most = -(-rows // -(-rows // most))
    return -(-most // 8) * 8


def tail_chunk_rows(x, columns):
    """Returns the number of rows of a tail's chunk, a tensor where the rows of a batch are known only at run time.

    The last chunk of a tail is padded, except under torch, so that a large chunk would cost more than it holds.
    """
    most, rows = default_chunk_rows(None, columns), ops.shape(x)[0]
    if keras.config.backend() == "torch":
        return most
    share = -(-rows // TAIL_CHUNKS)
    if isinstance(rows, int):
        return min(most, max(share, MIN_CHUNK_ROWS))
    return ops.minimum(most, ops.maximum(share, MIN_CHUNK_ROWS))


def _chunk(table, bias, extras, dtype, with_gradients, axis):
    """Returns the function of one chunk for `over_active_rows`.

    With e = exp(logits − peak) over the classes, and p the total probability of the classes beside the extra columns
    (1 without any),

        nll = log Σ exp(every logit of the row) − logits[target]
        ∂(weight·nll)/∂logits = weight · p / Σe · (e − Σe / p · onehot)

    The per-row factor is applied to the (rows, dim) matrices, so that the much larger e is read as few times as
    possible. Logits enter only by their distance from the largest of their row, as in a softmax: the digits of a
    probability depend on how far logits are apart and not on how large they are. The classes run along `axis` of the
    logits: (rows, classes) or (classes, rows).
    """
    classes = table.shape[0]
    narrow, wide = ops.cast(table, dtype), ops.cast(table, gradient_dtype(dtype))

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
    if keras.config.backend() == "tensorflow":  # its softmax takes less time than its exp
        import tensorflow as tf

        exps = tf.nn.softmax(with_dependencies(logits, peak), axis)
        return exps, ops.ones_like(peak), peak, -ops.log(ops.max(exps, axis))
    exps = ops.exp(logits - ops.expand_dims(peak, axis))
    total = ops.sum(exps, axis)
    return exps, total, peak, ops.log(total)


def gradient_dtype(dtype):
    """Returns the dtype of products with the gradient of the logits: float16 holds no probability below 6e-8."""
    return "float32" if dtype == "float16" else dtype


class _Column:
    """Column of every row of a matrix whose columns run along `axis`; none where `columns` lies outside."""

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
    """Works as `_chunk`, in place: one buffer of logits becomes probabilities and then their gradients."""
    import torch

    classes = table.shape[0]
    narrow, wide = ops.cast(table, dtype), ops.cast(table, gradient_dtype(dtype))
    buffer = None

    def body(inputs, live, carry):
        nonlocal buffer
        x, target, weight, *rest = inputs
        extra, excluded = rest[:extras], rest[extras:]
        kept = 0 if buffer is None else 1  # factor of the sums, which the first chunk overwrites
        if buffer is None:  # the first chunk is the largest
            columns = classes + sum(part.shape[1] for part in extra)
            buffer = torch.empty(len(x), columns, dtype=torch.float32, device=x.device)
        logits, words = buffer[: len(x)], buffer[: len(x), :classes]
        if x.dtype == torch.float32 and bias:
            torch.addmm(*bias, x, narrow.T, out=words)
        elif x.dtype == torch.float32:
            torch.mm(x, narrow.T, out=words)
        else:
            words.copy_(x @ narrow.T)
            for vector in bias:
                words += vector
        for columns in excluded:
            words.scatter_add_(1, columns.clamp(min=0).long()[:, None], -EXCLUDED * (columns >= 0).float()[:, None])
        for part in extra:
            logits[:, classes:] = part
        torch.log_softmax(logits, -1, out=logits)
        target, weight = target.long()[:, None], weight[:, None]
        nll = -logits.gather(1, target)[:, 0]
        if not with_gradients:
            return [nll], carry
        d_logits = logits.exp_().scatter_add_(1, target, logits.new_full((1, 1), -1.0).expand(len(x), 1))
        for total in carry[1:]:
            total.addmv_(words.T, weight[:, 0], beta=kept)
        words, scaled = words.to(wide.dtype), (weight * x).to(wide.dtype)
        if wide.dtype == torch.float32:
            carry[0].addmm_(words.T, scaled, beta=kept)
        elif kept:
            carry[0].add_(words.T @ scaled)
        else:
            carry[0].copy_(words.T @ scaled)
        return [nll, weight * (words @ wide), *(weight * d_logits[:, classes:] for _ in extra)], carry

    return body
