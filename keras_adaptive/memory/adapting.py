"""Models that learn from a text while they are evaluated on it: dynamic evaluation."""

from typing import Any

import keras
import numpy as np

from keras_adaptive.models import LanguageModel


class Adapting(LanguageModel):
    """Model that `adapting` returns."""

    def adapt(self, tokens: np.ndarray, targets: np.ndarray, weights: np.ndarray, begins: bool = True) -> None:
        """Makes one step of gradient descent on a part of a text, without dropout.

        Args:
            tokens: Ids (batch, length).
            targets: Ids of the words that follow (batch, length).
            weights: 1 for targets that count, and 0 for others (batch, length).
            begins: Whether the rows of streams begin, or continue those of the last call.
        """
        inputs = tokens if self.train_streams is None else (tokens, np.full(len(tokens), begins))
        logs = self.train_on_batch(inputs, targets, weights, return_dict=True)
        if not np.isfinite(logs["loss"]) or logs["skipped"]:
            raise ValueError(
                "The model has diverged in dynamic evaluation: its loss or its gradient is not finite. Pass a smaller "
                f"learning rate. Received: learning_rate={float(self.optimizer.learning_rate)}."
            )

    def _hidden(self, inputs: Any, state: Any, training: bool) -> Any:
        return super()._hidden(inputs, state, training=False)

    def _word_sums(self, hidden: Any, targets: Any, shares: Any) -> list[Any]:
        nll = self.word_output.total_nll(hidden, targets, shares)
        return [nll, keras.ops.stop_gradient(nll)]


def adapting(model: LanguageModel, learning_rate: float, streams: int | None = None) -> Adapting:
    """Returns a model that `evaluation` trains on each batch of a text after the losses of the batch.

    A step is one of plain gradient descent on the mean loss of a word. The model that is given changes too, since both
    have the same weights.

    Args:
        model: A `LanguageModel`.
        learning_rate: Factor of the gradient, above 0.
        streams: Number of streams for `evaluation.word_losses_of_streams`. Optional.

    Raises:
        ValueError: If the rate is not above 0.

    Reference:
        Krause et al., Dynamic Evaluation of Neural Sequence Models, ICML 2018, section 4.

    Example:

    >>> sizes = {"dim": 16, "num_blocks": 1, "num_heads": 2, "ffn_dim": 32, "cutoffs": ()}
    >>> model = adapting(transformer_lm(1_000, **sizes), learning_rate=0.5)
    >>> text = np.random.randint(0, 1_000, size=(1, 6))
    >>> before = model.nll(text[:, :-1], text[:, 1:]).mean()
    >>> model.adapt(text[:, :-1], text[:, 1:], np.ones((1, 5)))
    >>> bool(model.nll(text[:, :-1], text[:, 1:]).mean() < before)
    True
    """
    if not 0 < learning_rate < np.inf:
        raise ValueError(f"`learning_rate` must be above 0. Received: learning_rate={learning_rate}.")
    adapted = Adapting(model.word_input, model.body, model.word_output, trained_length=model.trained_length)
    adapted.compile(keras.optimizers.SGD(learning_rate), stream_rows=streams)
    return adapted
