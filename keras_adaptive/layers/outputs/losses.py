"""Losses of an output layer for models: the mean of a batch on all replicas, and the loss with its hits."""

import keras
from keras import ops

from keras_adaptive.backend.custom_vjp import with_gradient_of
from keras_adaptive.backend.replicas import (
    check_summed_by_keras,
    keeping_added_losses,
    replica_count,
    sum_over_replicas,
)
from keras_adaptive.ops.bands import count_outside
from keras_adaptive.ops.update_rows import update_rows
from keras_adaptive.ops.word_ids import word_ids


def mean_loss(output, hidden, targets, weights, training):
    """Returns the weighted mean loss per target of a batch, over all replicas, to add to the losses of a model.

    Keras trains on the mean of the losses of all replicas. The gradient is therefore that of this replica's part times
    the number of replicas. The value is NaN, without a gradient, if a target is outside the vocabulary.

    Args:
        output: An `Output`.
        hidden: (…, hidden_dim).
        targets: (…) ids.
        weights: (…) float32.
        training: Whether the loss is the `training_loss` of the output.

    Raises:
        ValueError: Under torch, if there are several processes, which Keras does not synchronize.
    """
    check_summed_by_keras("An output layer that adds its loss")
    with keeping_added_losses(output):
        replicas, count = replica_count(), sum_over_replicas(ops.sum(weights))
        shares = weights * replicas / ops.where(count == 0, 1.0, count)
        loss = output.training_loss(hidden, targets, shares) if training else output.total_nll(hidden, targets, shares)
        if replicas > 1:
            loss = with_gradient_of(loss, sum_over_replicas(ops.stop_gradient(loss)) / replicas)
        outside = sum_over_replicas(count_outside(targets, output.vocabulary_size, weights))
    return ops.where(outside > 0, float("nan"), loss)  # NaN has no gradient here


def loss_and_hits(output, hidden, targets, weights, training):
    """Returns the loss, and the total weight of the targets that are the most probable word.

    Args:
        output, hidden, targets: As in `mean_loss`.
        weights: (…) float, constants.
        training: Whether the loss is the `training_loss`, with dropout, or the exact one.

    Returns:
        `(loss, hits)`, float32 scalars. No gradient flows through the hits.
    """
    if training:
        loss, best = output.training_loss(hidden, targets, weights, training=True), _are_best(output, hidden, targets)
    else:
        log_probs, ranks = output.score(hidden, targets)
        loss, best = -ops.sum(weights * log_probs), ranks == 1
    return loss, ops.sum(weights * ops.cast(best, "float32"))


def _are_best(output, hidden, targets):
    """Returns whether targets are the most probable words, without gradients: JAX cannot differentiate the loops.

    The best word alone is found faster than the rank, for which all words are compared with the target.
    """

    def compare(rows, targets):
        log_probs, ids = output.top_k(rows, 1)
        return [(ids[:, 0] == targets) & ~ops.isnan(log_probs[:, 0])]

    constants = [(variable, ops.stop_gradient(variable.value)) for variable in output.variables]
    rows = ops.reshape(ops.stop_gradient(hidden), [-1, hidden.shape[-1]])
    ids = ops.reshape(word_ids(targets, output.vocabulary_size), [-1])
    with keras.StatelessScope(state_mapping=constants):
        (best,) = update_rows(compare, ids >= 0, [rows, ids], [ids < ids], output.boundaries[1])
    return ops.reshape(best, ops.shape(targets))
