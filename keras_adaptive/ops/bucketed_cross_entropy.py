"""Cross-entropy of each target against classes whose vectors lie in the direction of its hidden state."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_adaptive.ops.active_rows import update_rows
from keras_adaptive.ops.chunks import chunk_sizes
from keras_adaptive.ops.logit_chunks import EXCLUDED
from keras_adaptive.ops.long_rows import top_k
from keras_adaptive.ops.map_rows import map_rows
from keras_adaptive.typing import Tensor


class BucketSizes(NamedTuple):
    """Sizes of `bucketed_cross_entropy`.

    Args:
        buckets: Number of buckets.
        rows: Number of hidden states per bucket.
        classes: Number of classes per bucket.
    """

    buckets: int
    rows: int
    classes: int


def bucketed_cross_entropy(
    x: Tensor,
    targets: Tensor,
    weights: Tensor,
    vectors: Callable[[Tensor], tuple[Tensor, Tensor | None]],
    table: Tensor,
    sizes: BucketSizes,
    seed: Any,
) -> Tensor:
    """Computes the weighted sum of cross-entropies within buckets of hidden states and classes.

    A bucket has a direction, a sum of all hidden states with random weights. It holds the hidden states and the classes
    with the largest products with its direction. Within a bucket each row is compared with the classes of the bucket
    and with its target. A row that is in several buckets has the largest of its losses. The mean loss of the rows that
    are in a bucket stands for all rows: the result is this mean times the sum of all weights.

    The logits of a few buckets exist at a time; under torch those of all buckets, buckets · rows · classes numbers.

    Args:
        x: Float tensor (rows, dim), the hidden states.
        targets: Int32 tensor (rows,). A target below 0 excludes its row.
        weights: Float tensor (rows,), constants.
        vectors: Function from ids (n,) to vectors (n, dim) and biases (n,) or `None`, which the gradient reaches.
        table: Float tensor (classes, dim), the vectors of all classes, constants that choose the classes of a bucket.
        sizes: The sizes of the buckets.
        seed: A `keras.random.SeedGenerator`, or an integer.

    Returns:
        A float32 scalar, in nats.

    Reference:
        Mezentsev et al., Scalable Cross-Entropy Loss for Sequential Recommendations with Large Item Catalogs, RecSys
        2024, section 3.

    Example:

    >>> table = np.random.normal(size=(100, 8)).astype("float32")
    >>> vectors = lambda ids: (keras.ops.take(table, ids, axis=0), None)
    >>> x, targets = np.random.normal(size=(16, 8)).astype("float32"), np.arange(16)
    >>> loss = bucketed_cross_entropy(x, targets, np.ones(16), vectors, table, BucketSizes(4, 8, 10), seed=1)
    """
    x, table = ops.convert_to_tensor(x), ops.convert_to_tensor(table)
    targets, weights = ops.cast(targets, "int32"), ops.cast(weights, "float32")
    if x.shape[0] is None or x.shape[0] < sizes.rows:
        x, weights = ops.pad(x, [[0, sizes.rows], [0, 0]]), ops.pad(weights, [[0, sizes.rows]])
        targets = ops.pad(targets, [[0, sizes.rows]], constant_values=-1)
    active = (targets >= 0) & (weights != 0)
    x = ops.where(active[:, None], x, ops.zeros_like(x))
    weights = ops.where(active, ops.stop_gradient(weights), 0.0)
    rows, classes = _buckets(ops.stop_gradient(x), active, ops.stop_gradient(table), sizes, seed)
    losses = _losses(x, ops.where(active, targets, 0), vectors, rows, classes)

    flat, values, count = ops.reshape(rows, [-1]), ops.reshape(losses, [-1]), ops.shape(x)[0]
    largest = ops.segment_max(ops.stop_gradient(values), flat, num_segments=count)
    chosen = ops.cast(ops.stop_gradient(values) == ops.take(largest, flat), "float32")
    times = ops.segment_sum(chosen, flat, num_segments=count)  # more than once if equal; 0 outside of all buckets
    share = chosen * ops.take(weights / ops.maximum(times, 1.0), flat)
    scale = ops.sum(weights) / ops.maximum(ops.sum(ops.where(times > 0, weights, 0.0)), 1e-30)
    return scale * ops.sum(share * values)


def _buckets(x, active, table, sizes, seed):
    """Returns the rows (buckets, rows) and the classes (buckets, classes) of each bucket."""
    x = ops.cast(x, "float32")
    mixture = keras.random.normal((sizes.buckets, ops.shape(x)[0]), dtype="float32", seed=seed)
    directions = ops.matmul(mixture, x)
    products = ops.where(active[None], ops.matmul(directions, ops.transpose(x)), -float("inf"))
    rows = ops.cast(ops.top_k(products, sizes.rows)[1], "int32")  # of any number of rows, in any order
    table = ops.cast(table, "float32")
    best = lambda directions: [top_k(ops.matmul(directions, ops.transpose(table)), sizes.classes)[1]]  # noqa: E731
    outputs = [ops.zeros((sizes.buckets, sizes.classes), "int32")]
    every = ops.ones((sizes.buckets,), "bool")
    return rows, update_rows(best, every, [directions], outputs, table.shape[0])[0]


def _losses(x, targets, vectors, rows, classes):
    """Returns the cross-entropies of the rows of each bucket, (buckets, rows) float32."""
    size = classes.shape[0] * classes.shape[1]
    words, bias = vectors(ops.concatenate([ops.reshape(classes, [-1]), targets]))
    words = ops.cast(words, x.dtype)
    own = ops.sum(ops.cast(x, "float32") * ops.cast(words[size:], "float32"), axis=-1)
    of_classes = ops.zeros(classes.shape)
    if bias is not None:
        bias = ops.cast(bias, "float32")
        own, of_classes = own + bias[size:], ops.reshape(bias[:size], classes.shape)
    of_rows = [ops.take(tensor, rows, axis=0) for tensor in (x, own, targets)]
    inputs = [*of_rows, ops.reshape(words[:size], (*classes.shape, x.shape[-1])), of_classes, classes]
    at_a_time = max(1, chunk_sizes().logit_bytes // (4 * rows.shape[1] * classes.shape[1]))
    every = ops.ones((classes.shape[0],), "bool")
    return map_rows([(_of_buckets, every, at_a_time)], inputs, [], rows.shape[1], in_chunks=True)


def _of_buckets(x, own, targets, words, bias, classes):
    logits = ops.cast(ops.matmul(x, ops.transpose(words, (0, 2, 1))), "float32") + bias[:, None]
    logits = ops.where(targets[:, :, None] == classes[:, None], -EXCLUDED, logits)
    return ops.logsumexp(ops.concatenate([logits, own[:, :, None]], axis=-1), axis=-1) - own
