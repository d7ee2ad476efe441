import math
from typing import Any

import keras
from keras import ops

from keras_adaptive.losses.row_loss import RowLoss
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class CrossEntropy(RowLoss):
    """Cross-entropy, with label smoothing, a penalty on the size of the logits, and bounded logits.

    With the log-sum-exp L of the logits s of a row, the loss is

        (1 − label_smoothing) · (L − s[target]) + label_smoothing · (L − mean(s)) + z_loss · L²

    Perplexity and accuracy are those of the probabilities, without smoothing and penalty. Logs have the penalty as
    `z_loss`.

    Args:
        label_smoothing: Share of the target's probability that all classes get alike, from 0 to below 1.
        z_loss: Factor of L², which keeps the logits of low precision small.
        soft_cap: Bound c of the logits, which become c · tanh(logits / c) in training and prediction. Optional.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        Szegedy et al., Rethinking the Inception Architecture for Computer Vision, CVPR 2016, section 7 (smoothing);
        Chowdhery et al., PaLM, 2022, section 5 (z-loss); Gemma Team, Gemma 2, 2024, section 2 (soft cap).

    Example:

    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(), loss=CrossEntropy(label_smoothing=0.1, z_loss=1e-4))
    """

    def __init__(self, label_smoothing: float = 0.0, *, z_loss: float = 0.0, soft_cap: float | None = None) -> None:
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"`label_smoothing` must be at least 0 and below 1. Received: label_smoothing={label_smoothing}."
            )
        if not 0 <= z_loss < math.inf:
            raise ValueError(f"`z_loss` must be finite and at least 0. Received: z_loss={z_loss}.")
        if soft_cap is not None and not 0 < soft_cap < math.inf:
            raise ValueError(
                f"`soft_cap` must be positive: pass None for logits without bound. Received: soft_cap={soft_cap}."
            )
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.soft_cap = soft_cap
        self.reads_mean = label_smoothing > 0
        self.has_penalty = z_loss > 0
        self.is_plain = not self.reads_mean and not self.has_penalty

    def row(self, target: Tensor, log_total: Tensor, mean: Tensor) -> Tensor:
        expected = (1 - self.label_smoothing) * target + self.label_smoothing * mean
        return log_total - expected + self.z_loss * ops.square(log_total)

    def penalty(self, log_total: Tensor) -> Tensor:
        return self.z_loss * ops.square(log_total)

    def get_config(self) -> dict[str, Any]:
        return {"label_smoothing": self.label_smoothing, "z_loss": self.z_loss, "soft_cap": self.soft_cap}
