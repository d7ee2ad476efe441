import random
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.sparse.gradients import take_rows
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.adaptive_softmax import AdaptiveSoftmax
from keras_adaptive.layers.regularization.seeds import SharedSeedGenerator
from keras_adaptive.ops.chunks import default_chunk_rows
from keras_adaptive.ops.sampled_losses import SampledValues, noise_contrastive_loss, sampled_cross_entropy
from keras_adaptive.ops.sampling import LogUniform, Unigram, draw_noise, number_of_candidates
from keras_adaptive.typing import Shape, Tensor

LOSSES = {"importance_sampling": sampled_cross_entropy, "nce": noise_contrastive_loss}
BAND_ARGUMENTS = ("cutoffs", "factor", "tail_dropout", "tie_projections")  # arguments of `AdaptiveSoftmax` only


@keras.saving.register_keras_serializable(package="keras_adaptive")
class SampledSoftmax(AdaptiveSoftmax):
    """Sampled softmax, trained on a few noise words at a cost that does not grow with the vocabulary.

    Training compares every target with the same `num_samples` noise words, which are drawn without replacement for each
    update. The noise depends on the seed only: all micro-batches of an update and all replicas share it. The methods
    `nll`, `log_probs`, `score`, `top_k` and `sample` are exact, as in a plain softmax. The training loss is not the
    cross-entropy over the vocabulary: compare models by their validation perplexity.

    Biases start from 0 with importance sampling. With `"nce"` they start from the log-probabilities of the noise, so
    that an untrained model has the distribution of the noise. If they started from 0, the words that the noise rarely
    contains would have most of the probability for a long time. The other weights start as in `AdaptiveSoftmax`.

    Args:
        vocabulary_size: Number of classes, ordered by descending frequency.
        num_samples: Number of noise words per update, at most `vocabulary_size`.
        loss: `"importance_sampling"`, a softmax over the target and the noise (`ops.sampled_cross_entropy`), or
            `"nce"`, logistic losses (`ops.noise_contrastive_loss`).
        counts: Counts of the words in the training text, integers (vocabulary_size,), for noise from the unigram
            distribution. By default the noise is log-uniform: p(id) ∝ log((id + 2) / (id + 1)).
        seed: Integer, the seed of the noise. Optional.
        tied_to: The embedding whose table the softmax shares, a `WordEmbedding` of the same vocabulary.
        use_bias: Whether every word has a bias.
        input_dropout: Dropout rate on the hidden states, in training.

    Attributes:
        tables: A list of one variable (vocabulary_size, dim), its own or the tied one.
        bias: The variable (vocabulary_size,), or `None`.

    Call arguments:
        hidden, targets, weights: As in `Output`.

    Raises:
        ValueError: If `num_samples` exceeds `vocabulary_size`, `loss` is unknown, or `counts` is not an array of word
            counts.

    Reference:
        Jozefowicz et al., Exploring the Limits of Language Modeling, 2016, section 3.1; Bengio and Senécal, Quick
        Training of Probabilistic Neural Nets by Importance Sampling, AISTATS 2003; Gutmann and Hyvärinen,
        Noise-contrastive estimation, AISTATS 2010; Jean et al., On Using Very Large Target Vocabulary for Neural
        Machine Translation, ACL 2015.

    Example:

    >>> softmax = SampledSoftmax(10_000, num_samples=100)
    >>> hidden = np.random.normal(size=(2, 8, 64)).astype("float32")
    >>> targets = np.random.randint(0, 10_000, size=(2, 8))
    >>> loss = softmax.training_loss(hidden, targets)  # of the 16 targets against 100 noise words
    >>> softmax.nll(hidden, targets).shape  # exact
    (2, 8)
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_samples: int,
        *,
        loss: str = "importance_sampling",
        counts: Sequence[int] | np.ndarray | None = None,
        seed: int | None = None,
        tied_to: Input | None = None,
        use_bias: bool = True,
        input_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, (), tied_to=tied_to, use_bias=use_bias, input_dropout=input_dropout, **kwargs)
        if not 1 <= num_samples <= vocabulary_size:
            raise ValueError(
                f"`num_samples` must be from 1 to `vocabulary_size`, {vocabulary_size}: draw fewer noise words. "
                f"Received: num_samples={num_samples}."
            )
        if loss not in LOSSES:
            raise ValueError(f"`loss` must be one of {', '.join(LOSSES)}. Received: loss={loss!r}.")
        self.num_samples = num_samples
        self.loss = loss
        self.counts = None if counts is None else _checked(counts, vocabulary_size)
        self.seed = random.randrange(2**31) if seed is None else seed
        self.seed_generator = SharedSeedGenerator(self.seed)

    @property
    def row_variables(self) -> Sequence[Tensor]:
        return [*self.tables, *([] if self.bias is None else [self.bias])]

    def build(
        self, hidden_shape: Shape, targets_shape: Shape | None = None, weights_shape: Shape | None = None
    ) -> None:
        if self.built:
            return
        self._build_noise()
        super().build(hidden_shape, targets_shape, weights_shape)

    @property
    def _bias_initializer(self):
        if self.loss != "nce":
            return "zeros"
        return lambda shape, dtype=None: ops.log(self._distribution.probabilities(ops.arange(shape[0], dtype="int32")))

    def _build_noise(self):
        self._distribution = LogUniform(self.vocabulary_size) if self.counts is None else Unigram(self.counts)
        self._candidates = number_of_candidates(self._distribution, self.num_samples)

    def training_loss(
        self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None, training: bool | None = True
    ) -> Tensor:
        """Returns the sampled loss, a weighted sum over the targets.

        The arguments are those of `total_nll`. With `training=False` the result is the exact `total_nll`.
        """
        if not training:
            return self.total_nll(hidden, targets, weights)
        x, targets, weights = self._flat(hidden, targets, weights)
        x = self._project(self._drop_input(x, training=True), 0)
        targets = ops.where(targets < self.vocabulary_size, targets, -1)
        noise = draw_noise(self._distribution, self.num_samples, self._candidates, self.seed_generator)
        target_ids = ops.where(targets >= 0, targets, noise.ids[0])  # ignored targets read no further row
        ids = ops.concatenate([noise.ids, target_ids])
        counts = noise.expected_counts(self._distribution.probabilities(ids))
        of_noise, of_targets = counts[: self.num_samples], counts[self.num_samples :]
        sampled = SampledValues(noise.ids, of_targets, ops.where(noise.found, of_noise, 0.0))
        vectors, bias = self._vectors(ids)
        return LOSSES[self.loss](x, vectors, targets, weights, sampled, bias)

    def _vectors(self, ids):
        """Returns the vectors (words, dim) and the biases (words,), or `None`, of the words with these ids."""
        return take_rows(self.tables[0], ids), None if self.bias is None else take_rows(self.bias, ids)

    def logits_in_training(self, rows: int) -> int:
        return self.num_samples * default_chunk_rows(rows, self.num_samples, self.tables[0].shape[1])

    def get_config(self) -> dict[str, Any]:
        config = {name: value for name, value in super().get_config().items() if name not in BAND_ARGUMENTS}
        counts = None if self.counts is None else self.counts.tolist()
        return {**config, "num_samples": self.num_samples, "loss": self.loss, "counts": counts, "seed": self.seed}


def _checked(counts, vocabulary_size):
    """Returns the counts as an array after checking their shape and range."""
    counts = np.asarray(counts)
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
    return counts
