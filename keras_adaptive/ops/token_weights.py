from keras import ops

from keras_adaptive.typing import Tensor


def token_weights(targets: Tensor, weights: Tensor | None = None, *masks: Tensor | None) -> Tensor:
    """Returns the float32 weight of each target (batch, …).

    `weights` are shaped like the targets, or (batch,) for one weight per row; by default they are 1. A target for which
    one of the `masks`, bool tensors or `None`, is False gets the weight 0.
    """
    result = ops.ones(ops.shape(targets), "float32")
    for factor in (weights, *masks):
        if factor is not None:
            factor = ops.cast(factor, "float32")
            missing = len(result.shape) - len(factor.shape)
            result = result * ops.reshape(factor, (*ops.shape(factor), *(1,) * missing))
    return result
