"""Losses that compare a target with a few noise words, as objects that outputs take."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_adaptive.ops.sampled_losses import SampledValues, noise_contrastive_loss, sampled_cross_entropy
from keras_adaptive.ops.sampling import LogUniform, Noise, Unigram
from keras_adaptive.typing import Tensor


class SampledLoss:
    """Base class of losses on noise words, which a softmax without tails takes as its `loss`.

    Training compares every target with the same `num_samples` noise words, which are drawn without replacement for each
    update. The noise depends on the seed only: all micro-batches of an update and all replicas share it.

    Args:
        num_samples: Number of noise words per update, at most the size of the vocabulary.
        counts: Counts of the words in the training text, integers (vocabulary_size,), for noise from the unigram
            distribution. By default the noise is log-uniform: p(id) ∝ log((id + 2) / (id + 1)).
        seed: Integer, the seed of the noise. Optional.
    """

    function: Callable[..., Tensor]  # of `ops.sampled_losses`
    starts_from_noise: bool = False  # whether biases start from the log-probabilities of the noise
    soft_cap = None
    has_penalty = False

    def __init__(
        self, num_samples: int, *, counts: Sequence[int] | np.ndarray | None = None, seed: int | None = None
    ) -> None:
        self.num_samples = num_samples
        self.counts = None if counts is None else np.asarray(counts)
        self.seed = random.randrange(2**31) if seed is None else seed

    def check(self, vocabulary_size: int) -> None:
        """Checks the arguments against the size of a vocabulary.

        Raises:
            ValueError: If `num_samples` exceeds `vocabulary_size`, or `counts` is not an array of word counts.
        """
        if not 1 <= self.num_samples <= vocabulary_size:
            raise ValueError(
                f"`num_samples` must be from 1 to `vocabulary_size`, {vocabulary_size}: draw fewer noise words. "
                f"Received: num_samples={self.num_samples}."
            )
        counts = self.counts
        if counts is None:
            return
        if counts.shape != (vocabulary_size,) or not np.issubdtype(counts.dtype, np.integer) or counts.min() < 0:
            raise ValueError(
                f"`counts` must be {vocabulary_size} integers of at least 0, the count of each word. "
                f"Received: shape={counts.shape}, dtype={counts.dtype}."
            )
        if not counts.any():
            raise ValueError(
                "`counts` must not be 0 for all words: pass the counts of a text, or `None` for log-uniform noise. "
                "Received: 0 for all words."
            )

    def distribution(self, vocabulary_size: int) -> LogUniform | Unigram:
        """Returns the distribution of the noise words."""
        return LogUniform(vocabulary_size) if self.counts is None else Unigram(self.counts)

    def total(
        self,
        x: Tensor,
        targets: Tensor,
        weights: Tensor,
        vectors: Callable[..., Any],
        probabilities: Callable[..., Tensor],
        drawn: Noise,
    ) -> Tensor:
        """Returns the weighted sum of the losses.

        Args:
            x: (rows, dim), the hidden states.
            targets: (rows,) ids, −1 for rows that do not count.
            weights: (rows,) float32.
            vectors: Function from ids (words,) to their vectors (words, dim) and biases (words,) or `None`.
            probabilities: Function from ids to their probabilities in the distribution of the noise.
            drawn: The noise words of the update.
        """
        target_ids = ops.where(targets >= 0, targets, drawn.ids[0])  # ignored targets read no further row
        ids = ops.concatenate([drawn.ids, target_ids])
        counts = drawn.expected_counts(probabilities(ids))
        of_noise, of_targets = counts[: self.num_samples], counts[self.num_samples :]
        sampled = SampledValues(drawn.ids, of_targets, ops.where(drawn.found, of_noise, 0.0))
        words, bias = vectors(ids)
        return type(self).function(x, words, targets, weights, sampled, bias)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        counts = None if self.counts is None else self.counts.tolist()
        return {"num_samples": self.num_samples, "counts": counts, "seed": self.seed}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the loss of its configuration."""
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_adaptive")
class ImportanceSampling(SampledLoss):
    """Importance sampling: a softmax over the target and the noise words, `ops.sampled_cross_entropy`.

    Args:
        num_samples, counts, seed: As in `SampledLoss`.

    Reference:
        Jozefowicz et al., Exploring the Limits of Language Modeling, 2016, section 3.1; Bengio and Senécal, Quick
        Training of Probabilistic Neural Nets by Importance Sampling, AISTATS 2003.

    Example:

    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(), use_bias=True, loss=ImportanceSampling(100))
    """

    function = sampled_cross_entropy


@keras.saving.register_keras_serializable(package="keras_adaptive")
class NCE(SampledLoss):
    """Noise-contrastive estimation: logistic losses of the target and the noise, `ops.noise_contrastive_loss`.

    Biases start from the log-probabilities of the noise, so that an untrained model has the distribution of the noise.
    If they started from 0, the words that the noise rarely contains would have most of the probability for a long time.

    Args:
        num_samples, counts, seed: As in `SampledLoss`.

    Reference:
        Gutmann and Hyvärinen, Noise-contrastive estimation, AISTATS 2010; Jozefowicz et al., Exploring the Limits of
        Language Modeling, 2016, section 3.1.

    Example:

    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(), use_bias=True, loss=NCE(100))
    """

    function = noise_contrastive_loss
    starts_from_noise = True


LOSSES = {"importance_sampling": ImportanceSampling, "nce": NCE}  # by the names in flags and configurations
