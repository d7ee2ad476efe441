import math

import keras
import numpy as np
from keras import ops

from keras_adaptive.typing import Tensor


def perplexity(loss: float) -> float:
    """Computes the perplexity, `exp(loss)`.

    Args:
        loss: Mean negative log-likelihood per token in nats.

    Returns:
        A float; infinity if the result overflows.

    Example:

    >>> round(perplexity(2.0), 3)
    7.389
    """
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


@keras.saving.register_keras_serializable(package="keras_adaptive")
class Perplexity(keras.metrics.Mean):
    """Computes the perplexity of all tokens: exp of their weighted mean negative log-likelihood.

    Every token has the same influence, however the tokens are divided into batches and rows. The result is not a mean
    of the perplexities or losses of batches. It is not bounded: a mean above 88 nats overflows float32 to infinity.

    `keras.Model.compile(metrics=[...])` cannot feed this metric, since Keras passes the targets and the outputs of a
    model to metrics. A `keras_adaptive.models.WordModel` and a `LanguageModel` report the perplexity by themselves.

    Args:
        name: Name of the metric.
        dtype: Data type of the sums; float32 by default.

    Example:

    ```python
    perplexity = Perplexity()
    perplexity.update_state([[0.0, 1.0], [2.0, 3.0]], sample_weight=[[1.0, 1.0], [1.0, 0.0]])
    perplexity.result()  # exp(3 / 3) = 2.718
    ```
    """

    def __init__(self, name: str = "perplexity", dtype: str | None = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(self, nll: Tensor, *weights: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds the losses of tokens.

        Args:
            nll: Negative log-likelihoods in nats, of any shape.
            *weights: `sample_weight`, by position.
            sample_weight: Weights of the same shape, 0 for padding. Every token has weight 1 by default.

        Raises:
            ValueError: If the numbers of axes differ, as those of the targets and outputs of a model do.
        """
        sample_weight = weights[0] if weights else sample_weight  # Keras passes targets, outputs and `sample_weight`
        axes = [value if value is None else np.ndim(value) for value in (nll, sample_weight)]
        if axes[0] is None or axes[1] not in (None, axes[0]):
            raise ValueError(
                "`Perplexity` takes the loss of every token and its weight, not the targets and outputs of a model: "
                "omit it from `compile(metrics=...)` and use a `WordModel`, which reports the perplexity. "
                f"Received: numbers of axes {axes}."
            )
        # Both are flattened, because `keras.metrics.Mean` counts a row of any length as one sample.
        if sample_weight is not None:
            sample_weight = ops.reshape(sample_weight, (-1,))
        super().update_state(ops.reshape(nll, (-1,)), sample_weight)

    def result(self) -> Tensor:
        """Computes the perplexity of the tokens so far, a scalar tensor."""
        return ops.exp(super().result())
