"""The loss that an output layer adds to a model: the mean of a batch, on all replicas."""

from typing import NamedTuple

from keras import ops

from keras_adaptive.backend.custom_vjp import with_gradient_of
from keras_adaptive.backend.replicas import (
    check_summed_by_keras,
    keeping_added_losses,
    replica_count,
    sum_over_replicas,
)
from keras_adaptive.ops.word_ids import count_outside
from keras_adaptive.typing import Tensor


class MeanLoss(NamedTuple):
    """Means over the targets of a batch on all replicas, float32 scalars.

    Attributes:
        loss: The mean to add to the losses of the model.
        nll: The mean of −log p(target), a constant.
        count: The sum of the weights of the targets.
    """

    loss: Tensor
    nll: Tensor
    count: Tensor


def mean_loss(output, hidden, targets, weights, training):
    """Returns the `MeanLoss` of a batch.

    Keras trains on the mean of the losses of all replicas. The gradient is therefore that of this replica's part times
    the number of replicas. The value is NaN, without a gradient, if a target is outside the vocabulary. In training the
    loss is the `training_loss` of the output. Several processes, which Keras does not synchronize, raise a ValueError.
    """
    check_summed_by_keras("An output layer that adds its loss")
    with keeping_added_losses(output):
        replicas, count = replica_count(), sum_over_replicas(ops.sum(weights))
        shares = weights * replicas / ops.where(count == 0, 1.0, count)
        if training:
            sums = output.training_sums(hidden, targets, shares)
            loss, nll = sums.loss, sums.loss if sums.nll is None else sums.nll
        else:
            loss = nll = output.total_nll(hidden, targets, shares)
        outside = count_outside(targets, output.vocabulary_size, weights)
        value, nll, outside = sum_over_replicas([ops.stop_gradient(one) for one in (loss, nll, outside)])
        if replicas > 1:
            loss = with_gradient_of(loss, value / replicas)
    wrong = outside > 0  # NaN has no gradient here
    return MeanLoss(*(ops.where(wrong, float("nan"), one) for one in (loss, nll / replicas)), count)
