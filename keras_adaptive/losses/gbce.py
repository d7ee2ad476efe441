from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.losses.sampled import NoiseLoss, NoiseRows
from keras_adaptive.ops.sampled_losses import sampled_binary_cross_entropy
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class GBCE(NoiseLoss):
    """Generalized binary cross-entropy (gBCE), whose scores are less overconfident with few noise words.

    With k = `num_samples` noise words, a share α = k / (classes − 1) of all classes but the target, the loss of a
    target p is

        −(β · log σ(s_p) + Σ log(1 − σ(s_i))) / (k + 1),    β = α · (t · (1 − 1 / α) + 1 / α) = 1 − t · (1 − α),

    where the sum is over the noise words other than the target. The logits s are not corrected by expected counts. In
    the paper each target has noise words of its own; here all targets of an update share them.

    `log_probs` and `top_k` of the softmax rank by the same logits, but the logits of this loss are not trained to be
    log-probabilities: judge the model by ranks, not by its perplexity.

    Args:
        num_samples: Number of noise words per update, at most the number of classes minus 1.
        t: Calibration, from 0 (binary cross-entropy) to 1 (scores as with all classes as negatives).
        noise, counts, seed: As in `NoiseLoss`. The noise is `"uniform"` by default and cannot be `"in_batch"`.

    Raises:
        ValueError: If `t` is out of range, or another argument is invalid for a `NoiseLoss`.

    Reference:
        Petrov and Macdonald, gSASRec: Reducing Overconfidence in Sequential Recommendation Trained with Negative
        Sampling, RecSys 2023, section 5.

    Example:

    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(), loss=GBCE(256, t=0.75))
    """

    noises = ("uniform", "log_uniform", "unigram")

    def __init__(
        self,
        num_samples: int,
        *,
        t: float = 0.75,
        noise: str | None = None,
        counts: Sequence[int] | np.ndarray | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_samples, noise=noise, counts=counts, seed=seed)
        if not 0 <= t <= 1:
            raise ValueError(f"`t` must be from 0 to 1. Received: t={t}.")
        self.t = t

    def check(self, vocabulary_size: int) -> None:
        super().check(vocabulary_size)
        if self.num_samples == vocabulary_size:
            raise ValueError(
                f"`num_samples` of GBCE must be below `vocabulary_size`, {vocabulary_size}, since the target is no "
                f"negative. Received: num_samples={self.num_samples}."
            )

    def of_noise(self, rows: NoiseRows, vocabulary_size: int) -> Tensor:
        sampled = rows.sampled_values
        found = ops.cast(sampled.counts > 0, "float32")  # counts of 1 leave the logits uncorrected
        sampled = sampled._replace(target_counts=ops.ones_like(sampled.target_counts), counts=found)
        beta = 1 - self.t * (1 - self.num_samples / (vocabulary_size - 1))
        losses = sampled_binary_cross_entropy(*rows._replace(sampled_values=sampled), target_weight=beta)
        return losses / (self.num_samples + 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "t": self.t}
