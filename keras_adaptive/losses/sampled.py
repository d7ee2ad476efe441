"""Losses that compare a target with a few classes, such as noise words, as objects that outputs take."""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from keras_adaptive.ops.sampled_losses import SampledValues, noise_contrastive_loss, sampled_cross_entropy
from keras_adaptive.ops.sampling import DrawnNoise, InBatchNoise, LogUniform, Uniform, Unigram
from keras_adaptive.typing import Tensor


class SampledLoss:
    """Base class of losses that compare a target with a few classes, which a softmax without tails takes as its `loss`.

    A subclass implements `total`, which reads the vectors of the classes that it needs. `NoiseLoss` is the base class
    of losses on noise words.

    Args:
        num_samples: Maximum number of classes per update, beside the targets.
        seed: Integer, the seed of the choice. Optional.

    Attributes:
        needs_whole_batch: Whether the classes depend on the rows of an update, so that micro-batches are an error.
        starts_from_noise: Whether biases start from the log-probabilities of the noise.
    """

    needs_whole_batch: bool = False
    starts_from_noise: bool = False
    soft_cap = None
    has_penalty = False

    def __init__(self, num_samples: int, *, seed: int | None = None) -> None:
        self.num_samples = num_samples
        self.seed = random.randrange(2**31) if seed is None else seed

    def check(self, vocabulary_size: int) -> None:
        """Checks the arguments against the size of a vocabulary."""

    def source(self, vocabulary_size: int) -> DrawnNoise | InBatchNoise | None:
        """Returns the source of the noise words, which the layer keeps as its `noise`, if there is any."""
        return None

    def total(self, x: Tensor, targets: Tensor, weights: Tensor, softmax: Any) -> Tensor:
        """Returns the weighted sum of the losses.

        Args:
            x: (rows, dim), the hidden states.
            targets: (rows,) ids, −1 for rows that do not count.
            weights: (rows,) float32.
            softmax: The `Softmax` layer: its `vectors(ids)`, the vectors (words, dim) and biases (words,) or `None` of
                some words; its `softmax()`, of all words; its `noise`, `seed_generator` and `vocabulary_size`.
        """
        raise NotImplementedError(f"`{type(self).__name__}` must implement `total(x, targets, weights, softmax)`.")

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {"num_samples": self.num_samples, "seed": self.seed}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the loss of its configuration."""
        return cls(**config)


class NoiseRows(NamedTuple):
    """The arguments of `ops.sampled_cross_entropy` and the other functions of noise words, in their order."""

    x: Tensor
    vectors: Tensor
    targets: Tensor
    weights: Tensor
    sampled_values: SampledValues
    bias: Tensor | None


class NoiseLoss(SampledLoss):
    """Base class of losses on noise words.

    Training compares every target with the same noise words, which are different words. Noise from a distribution is
    drawn without replacement for each update. It depends on the seed only, so that all micro-batches of an update and
    all replicas share it. The noise `"in_batch"` is the different targets of the update, on all replicas together. It
    cannot be divided into micro-batches.

    Args:
        num_samples: Number of noise words per update, at most the size of the vocabulary; with `"in_batch"` noise the
            maximum.
        noise: `"log_uniform"`, p(id) ∝ log((id + 2) / (id + 1)) for ids by descending frequency; `"uniform"`;
            `"unigram"`, the distribution of `counts`; or `"in_batch"`. By default `"unigram"` with `counts`, and else
            the default of the loss.
        counts: Counts of the words in the training data, integers (vocabulary_size,), for `"unigram"` noise, and for
            the expected counts of `"in_batch"` noise. Without counts these follow from the shares in the batch, which
            say little about rare words.
        seed: Integer, the seed of the noise. Optional.

    Raises:
        ValueError: If the loss has no such `noise`, or `counts` do not belong to it.
    """

    noises: tuple[str, ...] = ("log_uniform", "uniform", "unigram")  # the first is the default

    def __init__(
        self,
        num_samples: int,
        *,
        noise: str | None = None,
        counts: Sequence[int] | np.ndarray | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_samples, seed=seed)
        self.counts = None if counts is None else np.asarray(counts)
        self.noise = noise or (self.noises[0] if counts is None else "unigram")
        if self.noise not in self.noises:
            raise ValueError(
                f"`noise` of {type(self).__name__} must be one of {', '.join(self.noises)}. Received: noise={noise!r}."
            )
        with_counts = {"unigram": (True,), "in_batch": (True, False)}.get(self.noise, (False,))
        if (counts is not None) not in with_counts:
            raise ValueError(
                "`counts` must be given with `unigram` noise, may be given with `in_batch` noise, and must be None "
                f"with others. Received: noise={noise!r}, counts={'None' if counts is None else 'an array'}."
            )
        self.needs_whole_batch = self.noise == "in_batch"

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

    def source(self, vocabulary_size: int) -> DrawnNoise | InBatchNoise:
        unigram = None if self.counts is None else Unigram(self.counts)
        if self.noise == "in_batch":
            return InBatchNoise(self.num_samples, unigram)
        without_counts = Uniform if self.noise == "uniform" else LogUniform
        return DrawnNoise(unigram or without_counts(vocabulary_size), self.num_samples)

    def total(self, x: Tensor, targets: Tensor, weights: Tensor, softmax: Any) -> Tensor:
        sampled = softmax.noise.draw(targets, weights, softmax.seed_generator)
        target_ids = ops.where(targets >= 0, targets, sampled.ids[0])  # ignored targets read no further row
        vectors, bias = softmax.vectors(ops.concatenate([sampled.ids, target_ids]))
        return self.of_noise(NoiseRows(x, vectors, targets, weights, sampled, bias), softmax.vocabulary_size)

    def of_noise(self, rows: NoiseRows, vocabulary_size: int) -> Tensor:
        """Returns the weighted sum of the losses.

        Args:
            rows: The targets and the noise words.
            vocabulary_size: Number of classes of the softmax.
        """
        raise NotImplementedError(f"`{type(self).__name__}` must implement `of_noise`.")

    def get_config(self) -> dict[str, Any]:
        counts = None if self.counts is None else self.counts.tolist()
        return {**super().get_config(), "noise": self.noise, "counts": counts}


@keras.saving.register_keras_serializable(package="keras_adaptive")
class ImportanceSampling(NoiseLoss):
    """Importance sampling: a softmax over the target and the noise words, `ops.sampled_cross_entropy`.

    Args:
        num_samples, noise, counts, seed: As in `NoiseLoss`.

    Reference:
        Jozefowicz et al., Exploring the Limits of Language Modeling, 2016, section 3.1; Bengio and Senécal, Quick
        Training of Probabilistic Neural Nets by Importance Sampling, AISTATS 2003.

    Example:

    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(), use_bias=True, loss=ImportanceSampling(100))
    """

    noises = (*NoiseLoss.noises, "in_batch")

    def of_noise(self, rows: NoiseRows, vocabulary_size: int) -> Tensor:
        return sampled_cross_entropy(*rows)


@keras.saving.register_keras_serializable(package="keras_adaptive")
class NCE(NoiseLoss):
    """Noise-contrastive estimation: logistic losses of the target and the noise, `ops.noise_contrastive_loss`.

    Biases start from the log-probabilities of the noise, so that an untrained model has the distribution of the noise.
    If they started from 0, the words that the noise rarely contains would have most of the probability for a long time.

    Args:
        num_samples, noise, counts, seed: As in `NoiseLoss`.

    Reference:
        Gutmann and Hyvärinen, Noise-contrastive estimation, AISTATS 2010; Jozefowicz et al., Exploring the Limits of
        Language Modeling, 2016, section 3.1.

    Example:

    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(), use_bias=True, loss=NCE(100))
    """

    starts_from_noise = True

    def of_noise(self, rows: NoiseRows, vocabulary_size: int) -> Tensor:
        return noise_contrastive_loss(*rows)


LOSSES = {"importance_sampling": ImportanceSampling, "nce": NCE}  # by the names in flags and configurations
