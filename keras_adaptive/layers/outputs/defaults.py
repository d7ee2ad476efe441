"""What any output layer computes from its log-probabilities, where it has no faster way."""

from typing import NamedTuple

import keras
from keras import ops

from keras_adaptive.ops.active_rows import update_rows
from keras_adaptive.ops.long_rows import alternatives, score, top_k, without_columns
from keras_adaptive.ops.long_tables import rows_at_once
from keras_adaptive.ops.word_ids import word_ids
from keras_adaptive.typing import Tensor


class TrainingSums(NamedTuple):
    """Weighted sums over the targets of a batch, float32 scalars.

    Attributes:
        loss: The sum that training minimizes.
        nll: The sum of −log p(target), a constant; `None` if it is the loss.
        hits: The weight of the targets that are the most probable words, a constant, if it was asked for.
        penalty: The part of the loss that logs report by itself, a constant, if there is one.
    """

    loss: Tensor
    nll: Tensor | None = None
    hits: Tensor | None = None
    penalty: Tensor | None = None


def hits_by_top_k(output, hidden, targets, weights):
    """Returns the weight of the targets that are the most probable words of any output, in a pass of its own.

    The best word alone is found faster than the rank, for which all words are compared with the target.
    """

    def compare(rows, targets):
        log_probs, ids = output.top_k(rows, 1)
        return [(ids[:, 0] == targets) & ~ops.isnan(log_probs[:, 0])]

    constants = [(variable, ops.stop_gradient(variable.value)) for variable in output.variables]
    rows = ops.reshape(ops.stop_gradient(hidden), [-1, hidden.shape[-1]])
    ids = ops.reshape(word_ids(targets, output.vocabulary_size), [-1])
    with keras.StatelessScope(state_mapping=constants):  # JAX cannot differentiate the loops
        (best,) = update_rows(compare, ids >= 0, [rows, ids], [ids < ids], output.boundaries[1])
    return ops.sum(weights * ops.cast(ops.reshape(best, ops.shape(targets)), "float32"))


def dense_sums(output, x, targets, weights):
    """Returns the weighted sums of an output's `RowLoss` and of −log p(target), from all log-probabilities.

    Raises:
        ValueError: If the loss depends on the size of logits, which this output does not have.
    """
    loss = output.loss
    if loss.soft_cap is not None or loss.has_penalty:
        raise ValueError(
            f"`soft_cap` and `z_loss` are about logits, and a {type(output).__name__} has probabilities only: leave "
            f"them out. Received: loss={loss.get_config()}."
        )
    log_probs = output.compute_log_probs(x)
    known = (targets >= 0) & (targets < output.vocabulary_size)
    picked = ops.take_along_axis(log_probs, ops.where(known, targets, 0)[:, None], axis=1)[:, 0]
    losses = loss.row(picked, ops.zeros_like(picked), ops.mean(log_probs, axis=1))
    weights = ops.where(known, weights, 0.0)
    return ops.sum(weights * losses), -ops.sum(weights * picked)


def alternatives_in_chunks(log_probs, x, targets, k, words):
    """Returns the arrays of `Output.alternatives` for rows, given the function from rows to log-probabilities."""
    rows = ops.shape(targets)[0]
    scores = [ops.zeros(rows), ops.ones(rows, "int32"), ops.zeros(rows)]
    best = [ops.zeros((rows, k)), ops.zeros((rows, k), "int32")]
    function = lambda x, targets: alternatives(log_probs(x), targets, k)  # noqa: E731
    return update_rows(function, targets == targets, [x, targets], [*scores, *best], words)


def best_in_chunks(log_probs, x, k, exclude, words):
    """Returns the arrays of `Output.top_k` for rows, given the function from rows to log-probabilities.

    It computes all of them, and so takes any number of ids `exclude` (rows, …), which TensorFlow may not know.
    """
    rows = ops.shape(x)[0]
    function = lambda x, exclude: list(top_k(without_columns(log_probs(x), exclude), k))  # noqa: E731
    outputs, every = [ops.zeros((rows, k)), ops.zeros((rows, k), "int32")], ops.ones(rows, "bool")
    return update_rows(function, every, [x, exclude], outputs, chunk_rows=rows_at_once(every.shape[0], words))


def scores_in_chunks(log_probs, x, targets, exclude, words):
    """Returns the arrays of `Output.score` for rows, given the function from rows to log-probabilities."""
    rows, more = ops.shape(targets)[0], [] if exclude is None else [exclude]
    function = lambda x, targets, *exclude: score(log_probs(x), targets, *exclude)  # noqa: E731
    outputs = [ops.zeros(rows), ops.ones(rows, "int32")]
    return update_rows(function, targets == targets, [x, targets, *more], outputs, words)
