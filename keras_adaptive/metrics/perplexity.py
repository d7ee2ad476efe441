import math

import keras
from keras import ops


def perplexity(loss):
    """Returns the perplexity of a mean loss in nats, a float: its exponential, inf where that overflows.

    Example:

    >>> perplexity(0.0)
    1.0
    """
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


@keras.saving.register_keras_serializable(package="keras_adaptive")
class Perplexity(keras.metrics.Mean):
    """Perplexity over all tokens seen: exp of their weighted mean negative log-likelihood.

    Every token counts alike, however the tokens are divided into batches and rows: it is never a mean of
    batches' perplexities, nor of batches' losses. The result is not bounded: a mean above 88 nats overflows
    float32 to inf.

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
            sample_weight: Weights of the same shape, 0 for padding. Each token weighs 1 by default.
        """
        # Flat, because `keras.metrics.Mean` weighs a row as one sample whatever its length.
        if sample_weight is not None:
            sample_weight = ops.reshape(sample_weight, (-1,))
        super().update_state(ops.reshape(nll, (-1,)), sample_weight)

    def result(self):
        return ops.exp(super().result())
