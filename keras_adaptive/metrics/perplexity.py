import math

import keras
import numpy as np
from keras import ops


def perplexity(loss):
    """Returns the perplexity of a mean loss in nats: exp(loss), a float, or inf where that overflows.

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
    """Perplexity over all tokens: exp of their weighted mean negative log-likelihood.

    Every token counts alike, however the tokens are divided into batches and rows. The result is never a mean of the
    batches' perplexities or losses. It has no bound: a mean above 88 nats overflows float32 to inf.

    `keras.Model.compile(metrics=[...])` cannot feed this metric, since Keras hands metrics the targets and the outputs
    of a model. A `keras_adaptive.models.WordModel` and a `LanguageModel` report it by themselves.

    Example:

    ```python
    perplexity = Perplexity()
    perplexity.update_state([[0.0, 1.0], [2.0, 3.0]], sample_weight=[[1.0, 1.0], [1.0, 0.0]])
    perplexity.result()  # exp(3 / 3) = 2.718
    ```
    """

    def __init__(self, name="perplexity", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def update_state(self, nll, sample_weight=None):
        """Adds tokens.

        Args:
            nll: Negative log-likelihoods in nats, of any shape.
            sample_weight: Weights of the same shape, 0 for padding. The weight of each token is 1 by default.

        Raises:
            ValueError: If the numbers of axes of the two differ, as for the targets and outputs of a model.
        """
        axes = [value if value is None else np.ndim(value) for value in (nll, sample_weight)]
        if axes[0] is None or axes[1] not in (None, axes[0]):
            raise ValueError(
                "`Perplexity` takes the loss of every token and its weight, not the targets and outputs of a model: "
                "leave it out of `compile(metrics=...)` and use a `WordModel`, which reports the perplexity. "
                f"Received: numbers of axes {axes}."
            )
        # Flat, because `keras.metrics.Mean` counts a row as one sample whatever its length.
        if sample_weight is not None:
            sample_weight = ops.reshape(sample_weight, (-1,))
        super().update_state(ops.reshape(nll, (-1,)), sample_weight)

    def result(self):
        return ops.exp(super().result())
