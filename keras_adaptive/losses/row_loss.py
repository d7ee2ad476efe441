from typing import Any, Self

from keras_adaptive.typing import Tensor


class RowLoss:
    """Base class of losses that a softmax computes in chunks, with exact gradients and without all logits at a time.

    Such a loss depends on three numbers of each row of logits: the logit of the target, the logarithm of the sum of
    exp(logit), and the mean of the logits. A subclass implements `row`, a formula in `keras.ops`; the gradients by the
    logits, and by hidden states and word vectors, follow from it on every backend. In an adaptive softmax each softmax
    is worth the loss: the head, whose columns for the tails count as classes, and the tail of the target. An output
    that has no logits passes log-probabilities, with a `log_total` of 0, and refuses a `soft_cap` or a penalty.

    Attributes:
        soft_cap: Bound c of the logits, which become c · tanh(logits / c) in training and prediction; or `None`.
        reads_mean: Whether `row` reads the mean, which takes another pass over the logits. Otherwise it is 0.
        is_plain: Whether `row` is the cross-entropy, which has a faster formula.
        has_penalty: Whether the loss has a `penalty`.

    Example:

    >>> class Focal(RowLoss):
    ...     def row(self, target, log_total, mean):
    ...         nll = log_total - target
    ...         return (1 - keras.ops.exp(-nll)) ** 2 * nll
    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(1_000, 4_000), loss=Focal())
    """

    soft_cap: float | None = None
    reads_mean: bool = False
    is_plain: bool = False
    has_penalty: bool = False

    def row(self, target: Tensor, log_total: Tensor, mean: Tensor) -> Tensor:
        """Returns the losses of rows.

        Args:
            target: (rows,) float32, the logit of each target.
            log_total: (rows,) float32, log Σ exp(logit).
            mean: (rows,) float32, the mean of the logits, if `reads_mean`.

        Returns:
            (rows,) float32, in nats.
        """
        raise NotImplementedError(f"`{type(self).__name__}` must implement `row(target, log_total, mean)`.")

    def penalty(self, log_total: Tensor) -> Tensor:
        """Returns the part of `row`, (rows,) float32, that logs report as `z_loss`."""
        raise NotImplementedError(f"`{type(self).__name__}` must implement `penalty(log_total)`.")

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the loss of its configuration."""
        return cls(**config)
