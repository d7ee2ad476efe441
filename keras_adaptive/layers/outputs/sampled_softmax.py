from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.adaptive_softmax import AdaptiveSoftmax
from keras_adaptive.losses.sampled import LOSSES

SAMPLING = ("loss", "num_samples", "counts", "seed")  # what configurations say of the noise
OF_BANDS = ("cutoffs", "factor", "tail_dropout", "tie_projections")  # arguments of `AdaptiveSoftmax` only


@keras.saving.register_keras_serializable(package="keras_adaptive")
class SampledSoftmax(AdaptiveSoftmax):
    """Sampled softmax, trained on a few noise words at a cost that does not grow with the vocabulary.

    This is an `AdaptiveSoftmax` without tails, with `losses.ImportanceSampling` or `losses.NCE` as its loss, and with
    biases by default. That layer takes other losses, and other noise. Training compares every target with the same
    `num_samples` noise words of an update. The methods `nll`, `log_probs`, `score`, `top_k` and `sample` are exact, as
    in a plain softmax. The training loss is not the cross-entropy over the vocabulary: compare models by their
    validation perplexity.

    Biases start from 0 with importance sampling, and from the log-probabilities of the noise with `"nce"`. The other
    weights start as in `AdaptiveSoftmax`.

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
        sampled = sampled_loss(loss, num_samples, counts, seed)
        super().__init__(
            vocabulary_size, (), tied_to=tied_to, use_bias=use_bias, input_dropout=input_dropout, loss=sampled, **kwargs
        )

    def get_config(self) -> dict[str, Any]:
        config = {name: value for name, value in super().get_config().items() if name not in OF_BANDS}
        of_noise = {name: value for name, value in self.loss.get_config().items() if name in SAMPLING}
        return {**config, **of_noise, "loss": next(name for name, kind in LOSSES.items() if type(self.loss) is kind)}


def sampled_loss(name, num_samples, counts, seed):
    """Returns the loss of this name."""
    if name not in LOSSES:
        raise ValueError(f"`loss` must be one of {', '.join(LOSSES)}. Received: loss={name!r}.")
    return LOSSES[name](num_samples, counts=counts, seed=seed)
