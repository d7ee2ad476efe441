"""Training losses that compare a target with a few noise words instead of the whole vocabulary."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_shapes
from keras_adaptive.backend.custom_vjp import custom_vjp
from keras_adaptive.backend.products import add_product, matmul
from keras_adaptive.ops.active_rows import over_active_rows
from keras_adaptive.ops.chunks import default_chunk_rows
from keras_adaptive.ops.linear_cross_entropy import linear_cross_entropy
from keras_adaptive.ops.logit_chunks import EXCLUDED, gradient_dtype
from keras_adaptive.typing import Tensor

LAST = 2**31 - 1  # larger than any id


class SampledValues(NamedTuple):
    """Noise words and expected counts, in the order of TensorFlow's `sampled_values`.

    Args:
        ids: Int tensor (samples,), different words.
        target_counts: Float tensor (rows,), the expected count of every target among the noise words.
        counts: Float tensor (samples,), the expected counts of the noise words; 0 leaves a word out.

    Example:

    >>> ids, counts = np.array([7, 3, 12]), np.array([0.2, 0.4, 0.1], "float32")
    >>> sampled_values = SampledValues(ids, target_counts=np.array([0.4, 0.1], "float32"), counts=counts)
    """

    ids: Tensor
    target_counts: Tensor
    counts: Tensor


def sampled_cross_entropy(
    x: Tensor,
    vectors: Tensor,
    targets: Tensor,
    weights: Tensor,
    sampled_values: SampledValues | tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None = None,
    loss: Any = None,
) -> Tensor:
    """Computes the weighted sum of the cross-entropies of a softmax over each target and the noise words.

    The sum Σ_r weights[r] · −log softmax(s)[targets[r]] is over the rows whose target is not negative. For each row s
    holds the corrected logits x·v(w) + bias(w) − log(expected count of w) of its target and of the noise words other
    than its target. It is an importance sample of the cross-entropy over the vocabulary, which it approaches as the
    number of noise words grows.

    Each row gives the loss of `tf.nn.sampled_softmax_loss` with one true class. The logits of only one chunk of rows
    exist at a time, as in `linear_cross_entropy`.

    Args:
        x: Float tensor (rows, dim), the hidden states.
        vectors: Float tensor (samples + rows, dim), the vectors of the noise words and then of the targets: one lookup.
        targets: Int tensor (rows,). A target below 0 excludes its row from the sum.
        weights: Float tensor (rows,). They are constants: no gradient flows to them.
        sampled_values: A `SampledValues`, or a tuple `(ids, target_counts, counts)` as a sampler of TensorFlow returns.
        bias: Float tensor (samples + rows,), in the order of `vectors`. Optional.
        loss: What the logits of a row are worth, as in `linear_cross_entropy`. By default the cross-entropy.

    Returns:
        A float32 scalar, in nats.

    Raises:
        ValueError: If the shapes do not fit together, there is no noise word, or counts or noise words are invalid.
            Only NumPy arrays of counts and words are checked.

    Reference:
        Bengio and Senécal, Quick Training of Probabilistic Neural Nets by Importance Sampling, AISTATS 2003; Jean et
        al., On Using Very Large Target Vocabulary for Neural Machine Translation, ACL 2015, section 3; Jozefowicz et
        al., Exploring the Limits of Language Modeling, 2016, section 3.1.

    Example:

    >>> table = np.random.normal(size=(100, 8)).astype("float32")
    >>> targets, noise = np.array([4, 99]), np.array([7, 3, 12])
    >>> uniform = SampledValues(noise, target_counts=np.full(2, 0.03, "float32"), counts=np.full(3, 0.03, "float32"))
    >>> x, vectors = np.zeros((2, 8), "float32"), table[np.concatenate([noise, targets])]
    >>> loss = sampled_cross_entropy(x, vectors, targets, np.ones(2), uniform)
    >>> round(float(loss), 3)  # 2 · log(4), since each target is compared with three words
    2.773
    """
    sampled = SampledValues(*sampled_values)
    table, noise_bias, target_logits, active = _logits(x, vectors, targets, weights, sampled, bias)
    count = table.shape[0]
    places = ops.where(active, count, -1)  # the target is the column after the noise words
    excluded = _columns_of(targets, sampled)
    return linear_cross_entropy(
        x, table, places, weights, target_logits[:, None], bias=noise_bias, excluded=excluded, loss=loss
    )


def noise_contrastive_loss(
    x: Tensor,
    vectors: Tensor,
    targets: Tensor,
    weights: Tensor,
    sampled_values: SampledValues | tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None = None,
) -> Tensor:
    """Computes the weighted sum of the logistic losses that separate each target from the noise words.

    With the corrected logits s of `sampled_cross_entropy`, a row has the loss

        softplus(−s[target]) + Σ softplus(s[w]) over all noise words w,

    including the row's target, if it was drawn. This is noise-contrastive estimation: the logits x·v(w) + bias(w) learn
    to be log-probabilities without a softmax. Each row gives the loss of `tf.nn.nce_loss` with one true class.

    Args:
        x, vectors, targets, weights, sampled_values, bias: As in `sampled_cross_entropy`.

    Returns:
        A float32 scalar.

    Raises:
        ValueError: As in `sampled_cross_entropy`.

    Reference:
        Gutmann and Hyvärinen, Noise-contrastive estimation: A new estimation principle for unnormalized statistical
        models, AISTATS 2010; Jozefowicz et al., Exploring the Limits of Language Modeling, 2016, section 3.1.

    Example:

    >>> table = np.random.normal(size=(100, 8)).astype("float32")
    >>> targets, noise = np.array([4, 99]), np.array([7, 3, 12])
    >>> uniform = SampledValues(noise, target_counts=np.full(2, 0.03, "float32"), counts=np.full(3, 0.03, "float32"))
    >>> x, vectors = np.ones((2, 8), "float32"), table[np.concatenate([noise, targets])]
    >>> loss = noise_contrastive_loss(x, vectors, targets, np.ones(2), uniform)
    """
    return _logistic_losses(x, vectors, targets, weights, SampledValues(*sampled_values), bias)


def sampled_binary_cross_entropy(
    x: Tensor,
    vectors: Tensor,
    targets: Tensor,
    weights: Tensor,
    sampled_values: SampledValues | tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None = None,
    target_weight: float = 1.0,
) -> Tensor:
    """Computes the weighted sum of binary cross-entropies: each target is positive, the noise words are negative.

    With the corrected logits s of `sampled_cross_entropy`, a row has the loss

        target_weight · softplus(−s[target]) + Σ softplus(s[w]) over the noise words w other than the target.

    Expected counts of 1 leave the logits uncorrected.

    Args:
        x, vectors, targets, weights, sampled_values, bias: As in `sampled_cross_entropy`.
        target_weight: Factor of the loss of the targets.

    Returns:
        A float32 scalar.

    Raises:
        ValueError: As in `sampled_cross_entropy`.

    Reference:
        Kang and McAuley, Self-Attentive Sequential Recommendation, ICDM 2018, section III.E.

    Example:

    >>> table = np.random.normal(size=(100, 8)).astype("float32")
    >>> targets, noise = np.array([4, 99]), np.array([7, 4, 12])
    >>> uncorrected = SampledValues(noise, target_counts=np.ones(2, "float32"), counts=np.ones(3, "float32"))
    >>> x, vectors = np.zeros((2, 8), "float32"), table[np.concatenate([noise, targets])]
    >>> loss = sampled_binary_cross_entropy(x, vectors, targets, np.ones(2), uncorrected)
    >>> round(float(loss), 3)  # 7 · log(2), since the first row leaves out one of the three words
    4.852
    """
    sampled = SampledValues(*sampled_values)
    excluded = _columns_of(targets, sampled)
    return _logistic_losses(x, vectors, targets, weights, sampled, bias, target_weight, excluded)


def _logistic_losses(x, vectors, targets, weights, sampled, bias, target_weight=1.0, excluded=None):
    """Returns the weighted sum of the logistic losses of targets and noise words, without the `excluded` columns."""
    table, noise_bias, target_logits, active = _logits(x, vectors, targets, weights, sampled, bias)
    weights = ops.where(active, ops.stop_gradient(ops.cast(weights, "float32")), 0.0)
    of_targets = target_weight * ops.sum(weights * ops.softplus(-target_logits))
    return of_targets + _softplus_sum(ops.convert_to_tensor(x), table, noise_bias, weights, excluded)


def _logits(x, vectors, targets, weights, sampled, bias):
    """Returns the noise vectors, their corrected biases, the corrected logits of the targets and the active rows."""
    check_shapes(
        ids=(sampled.ids, "samples"),
        counts=(sampled.counts, "samples"),
        x=(x, "rows dim"),
        vectors=(vectors, "samples+rows dim"),
        targets=(targets, "rows"),
        weights=(weights, "rows"),
        target_counts=(sampled.target_counts, "rows"),
        bias=(bias, "samples+rows"),
    )
    _check_values(sampled)
    count = sampled.ids.shape[0]
    table, target_vectors = _split(ops.convert_to_tensor(vectors), count)
    active = (ops.convert_to_tensor(targets) >= 0) & (ops.convert_to_tensor(weights) != 0)
    x = ops.where(active[:, None], ops.cast(x, "float32"), 0.0)
    target_logits = ops.sum(x * ops.cast(target_vectors, "float32"), axis=-1) - _log(sampled.target_counts)
    correction = _log(sampled.counts)
    if bias is None:
        noise_bias = -correction
    else:
        noise_bias, target_bias = _split(ops.cast(bias, "float32"), count)
        noise_bias, target_logits = noise_bias - correction, target_logits + target_bias
    return table, ops.where(_drawn(sampled), noise_bias, -EXCLUDED), target_logits, active


def _check_values(sampled):
    """Checks the noise words and their counts where they are arrays on the host; reading tensors would take time."""
    if sampled.ids.shape[0] == 0:
        raise ValueError("`ids` of `sampled_values` must hold at least one noise word. Received: shape=(0,).")
    for name in ("counts", "target_counts"):
        counts = getattr(sampled, name)
        if isinstance(counts, np.ndarray) and not ((counts >= 0) & (counts < np.inf)).all():
            raise ValueError(
                f"`{name}` of `sampled_values` must be expected counts: finite and at least 0. Received: from "
                f"{counts.min()} to {counts.max()}."
            )
    if not all(isinstance(array, np.ndarray) for array in (sampled.ids, sampled.counts)):
        return
    drawn = sampled.ids[sampled.counts > 0]
    if len(np.unique(drawn)) < len(drawn):
        raise ValueError(
            "`ids` of `sampled_values` must be different words: give repeated ones the count 0. Received: "
            f"ids of {len(drawn)} words, {len(np.unique(drawn))} of them different."
        )


def _log(counts):
    """Returns the logarithms of expected counts, which are constants; 0 for a count of 0."""
    counts = ops.stop_gradient(ops.cast(counts, "float32"))
    return ops.log(ops.where(counts > 0, counts, 1.0))


def _drawn(sampled):
    return ops.convert_to_tensor(sampled.counts) > 0


def _split(tensor, count):
    """Returns the first `count` rows and the rest; a split joins their gradients without adding padded arrays."""
    if keras.config.backend() != "tensorflow":
        return ops.split(tensor, [count])
    import tensorflow as tf

    return tf.split(tensor, [count, -1])  # the size of the rest may be unknown


def _columns_of(targets, sampled):
    """Returns the column of each target among the noise words, −1 for none: (rows,) int32."""
    targets = ops.cast(targets, "int32")
    ids = ops.where(_drawn(sampled), ops.cast(sampled.ids, "int32"), LAST)
    order = ops.argsort(ids)
    ids = ops.take(ids, order)
    place = ops.minimum(ops.cast(ops.searchsorted(ids, targets), "int32"), ids.shape[0] - 1)
    return ops.where(ops.take(ids, place) == targets, ops.cast(ops.take(order, place), "int32"), -1)


def _softplus_sum(x, table, bias, weights, excluded=None):
    """Computes Σ weight · softplus(x·tableᵀ + bias) over rows and columns, with its gradients in the same pass.

    The weights (rows,) are constants. A row of weight 0 costs nothing. `excluded` (rows,) has a column that each row
    leaves out, or −1.
    """
    dtypes = [keras.backend.standardize_dtype(tensor.dtype) for tensor in (x, table, bias)]
    columns = ops.arange(table.shape[0], dtype="int32")
    constants = [weights] if excluded is None else [weights, excluded]

    def forward(x, table, bias, weights, *excluded):
        narrow, wide = ops.cast(table, dtypes[0]), ops.cast(table, gradient_dtype(dtypes[0]))

        def body(inputs, live, carry):
            x, weight, *own = inputs
            weight = ops.where(live, weight, 0.0)
            logits = ops.cast(matmul(x, ops.transpose(narrow)), "float32") + bias
            if own:
                logits = ops.where(columns == own[0][:, None], -EXCLUDED, logits)
            losses = weight * ops.sum(ops.softplus(logits), axis=-1)
            d_logits = weight[:, None] * ops.sigmoid(logits)
            of_bias = carry[1] + ops.sum(d_logits, axis=0)
            d_logits = ops.cast(d_logits, wide.dtype)
            of_table = add_product(carry[0], ops.transpose(d_logits), ops.cast(x, wide.dtype))
            return [losses, matmul(d_logits, wide)], [of_table, of_bias]

        outputs = [ops.zeros(ops.shape(tensor), "float32") for tensor in (weights, x)]
        carry = [ops.zeros(ops.shape(tensor), "float32") for tensor in (table, bias)]
        chunk_rows = default_chunk_rows(x.shape[0], *table.shape)
        (losses, of_x), sums = over_active_rows(body, weights != 0, (x, weights, *excluded), outputs, carry, chunk_rows)
        return ops.sum(losses), (of_x, *sums)

    def backward(gradients, upstream):
        of_floats = (ops.cast(upstream * gradient, dtype) for gradient, dtype in zip(gradients, dtypes))
        return [*of_floats, *[None] * len(constants)]

    return custom_vjp(forward, backward)(x, table, bias, *constants)
