"""The loss that an output layer adds to a model: the mean of a batch, on all replicas."""

from keras import ops

from keras_adaptive.backend.custom_vjp import with_gradient_of
from keras_adaptive.backend.replicas import (
    check_summed_by_keras,
    keeping_added_losses,
    replica_count,
    sum_over_replicas,
)
from keras_adaptive.ops.bands import count_outside


def mean_loss(output, hidden, targets, weights, training):
    """Returns the weighted mean loss per target of a batch, over all replicas, to add to the losses of a model.

    Keras trains on the mean of the losses of all replicas. The gradient is therefore that of this replica's part times
    the number of replicas. The value is NaN, without a gradient, if a target is outside the vocabulary. In training the
    loss is the `training_loss` of the output. Several processes, which Keras does not synchronize, raise a ValueError.
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
