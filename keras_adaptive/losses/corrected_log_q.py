from typing import Any

import keras
from keras import ops

from keras_adaptive.losses.row_loss import RowLoss
from keras_adaptive.losses.sampled import NoiseLoss, NoiseRows
from keras_adaptive.ops.sampled_losses import sampled_cross_entropy
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class CorrectedLogQ(NoiseLoss):
    """Sampled softmax whose log-Q correction leaves out the target, since the target is present with probability 1.

    With the logit s of each word and its expected count Q among the noise words, the loss of a target p is

        sg(1 − P) · (log Σ exp(s_i − log Q_i) − s_p),    P = exp(s_p) / (exp(s_p) + Σ exp(s_i − log Q_i)),

    where the sums are over the noise words other than the target, and no gradient flows through sg. Rows that the model
    already predicts well have small weights. The loss may be negative. `ImportanceSampling` subtracts log Q from the
    logit of the target too, which favors rare targets.

    In the paper Q_i is a probability per draw, given that the draw is not the target, and the sum in P is a mean. An
    expected count is the number of draws times this probability. The loss then differs by a constant, whose gradient is
    that of sg(1 − P) and therefore 0.

    Args:
        num_samples, noise, counts, seed: As in `NoiseLoss`. All kinds of noise are supported.

    Reference:
        Khrylchenko et al., Correcting the LogQ Correction: Revisiting Sampled Softmax for Large-Scale Retrieval,
        RecSys 2025, sections 3.3 and 4.

    Example:

    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(), loss=CorrectedLogQ(100, noise="uniform"))
    """

    noises = (*NoiseLoss.noises, "in_batch")

    def of_noise(self, rows: NoiseRows, vocabulary_size: int) -> Tensor:
        sampled = rows.sampled_values
        sampled = sampled._replace(target_counts=ops.ones_like(sampled.target_counts))
        return sampled_cross_entropy(*rows._replace(sampled_values=sampled), loss=_WeightedOdds())


class _WeightedOdds(RowLoss):
    """The loss (1 − P) · log((1 − P) / P) of a target of probability P, with a constant weight 1 − P.

    The gradient of the logarithm by −log P is 1 / (1 − P). So the gradient of the loss is exactly that of −log P, and
    none of the two factors is divided by a small number.
    """

    def row(self, target: Tensor, log_total: Tensor, mean: Any) -> Tensor:
        nll = log_total - target
        rest = ops.maximum(-ops.expm1(-nll), 0.0)  # 1 − P
        value = rest * (ops.log(ops.maximum(rest, 1e-30)) + nll)
        return nll + ops.stop_gradient(value - nll)
