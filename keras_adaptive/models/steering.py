"""Draws among the words that are allowed, by the log-probabilities of as few words as possible."""

from keras import ops

from keras_adaptive.ops import long_rows
from keras_adaptive.typing import Tensor

FORBIDDEN = -1e9  # log-probability that is never drawn; samplers of KerasHub multiply it, so that it is finite


def best_allowed(output, hidden: Tensor, size: int, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Returns `(log_probs, ids)`, (…, size) each: the most probable allowed words, and after them forbidden ones.

    Args:
        output: An `Output`.
        hidden: (…, hidden_dim).
        size: Number of words, those that are wanted and as many as are forbidden.
        bias: (vocabulary_size,), `FORBIDDEN` for forbidden words and 0 for the others.
    """
    log_probs, ids = output.top_k(hidden, size)
    log_probs, places = long_rows.top_k(log_probs + ops.take(bias, ids), size)
    return log_probs, ops.take_along_axis(ids, places, axis=-1)


def draw_allowed(output, hidden: Tensor, uniform: Tensor, bias: Tensor) -> Tensor:
    """Draws ids (…) from the distribution of the allowed words, by numbers `uniform` (3, …); see `best_allowed`.

    The exact draw of the output layer is repeated for rows that drew a forbidden word, so that log-probabilities of all
    words are rarely computed.
    """
    ids = output.sample_from_uniform(hidden, uniform[:2])
    refused = ops.take(bias, ops.maximum(ids, 0)) < 0
    again = lambda: long_rows.draw(output.log_probs(hidden) + bias, uniform[2])  # noqa: E731
    return ops.where(refused, ops.cond(ops.any(refused), again, lambda: ids), ids)
