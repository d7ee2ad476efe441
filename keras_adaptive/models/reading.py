"""How a text of any length is read: in windows no longer than the rows that a model was trained on."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

LONGEST = 2048  # tokens of a window of attention if neither training nor positions limit it


class Reading(NamedTuple):
    """How a model reads a text: as a whole, or in windows that overlap.

    The text is scored in blocks of `window - context` tokens. A block is read after the `context` tokens before it, so
    that a window never has more than `window` tokens. What a token sees depends on its place alone. A text therefore
    has one log-probability, whatever follows it and whoever computes it.

    Args:
        window: Largest number of tokens of a window, `None` to read a text as a whole.
        context: Number of tokens of a window that are read and not scored. The first window scores all of its tokens.

    Example:

    >>> Reading(window=8, context=4).windows(14)
    [(0, 0, 8), (4, 8, 12), (8, 12, 14)]
    """

    window: int | None = None
    context: int = 0

    def begin(self, place: Any, maximum: Any = np.maximum) -> Any:
        """Returns the place of the first token in the window of the scored token at `place`, counted from 0.

        Places are integers, arrays or tensors; `maximum` is a function of two of them.
        """
        if self.window is None:
            return place * 0
        block = self.window - self.context
        return maximum(place // block * block - self.context, 0)

    def windows(self, length: int) -> list[tuple[int, int, int]]:
        """Returns the windows of a text of `length` tokens, a list of `(begin, start, stop)`.

        The tokens from `begin` to `stop` are read, and those from `start` to `stop` are scored.
        """
        stops = [*range(int(self.whole), length, self.block), length] if self.window else [length]
        return [(int(self.begin(start)), start, stop) for start, stop in zip([0, *stops], stops)]

    @property
    def block(self) -> int:
        """Number of tokens that a window scores after the first window."""
        return self.window - self.context if self.window else 0

    @property
    def whole(self) -> float:
        """Number of tokens of the longest text that is read as a whole, infinity without windows."""
        return (self.context // self.block + 1) * self.block if self.window else np.inf

    def capacity(self, length: int) -> int:
        """Returns the largest number of tokens that a state must hold to read a text of `length` tokens."""
        return min(self.window or length, length)

    def describe(self, length: float = np.inf) -> str:
        """Returns how a text of `length` tokens is read, in words that follow "read"."""
        if length <= self.whole:
            return "as a whole"
        context = f", {self.context:,} of them context" if self.context else " without context"
        return f"in windows of {self.window:,} tokens{context}"


def reading_of(model: Any, window: int | None = None, context: int | None = None) -> Reading:
    """Returns how a model reads a text: the default, or with another window or another context.

    A body whose state has a fixed size reads a text as a whole. Attention reads it in windows of `trained_length`
    tokens, since it predicts badly at positions that training has not seen. Without a trained length, or with linear
    biases, a window has 2,048 tokens, or as many as there are learned positions. Half of a window is context.

    Args:
        model: A `LanguageModel` or an `Ensemble`.
        window: Number of tokens of a window, which may exceed the trained length. Optional.
        context: Number of tokens of a window that are not scored. More context costs more windows. Optional.

    Raises:
        ValueError: If a number is out of range, or `context` is given to a body that reads a text as a whole.
    """
    most = model.body.max_length
    if window is None and state_grows(model.body):
        trained = None if model.body.extrapolates else model.trained_length
        window = min(trained or LONGEST, most or np.inf)
    if window is None:
        if context is not None:
            raise ValueError(
                "`context` belongs to windows, and this body reads a text as a whole: leave it out, or pass `window` "
                f"too. Received: context={context}."
            )
        return Reading()
    if not _is_whole(window) or not 1 <= window <= (most or np.inf):
        limit = f" and at most {most:,}, the number of learned positions" if most else ""
        raise ValueError(f"`window` must be a whole number of at least 1{limit}. Received: window={window!r}.")
    context = window - window // 2 if context is None and window > 1 else context or 0
    if not _is_whole(context) or not 0 <= context < window:
        raise ValueError(
            f"`context` must be a whole number from 0 to {window - 1}, below the window. Received: context={context!r}."
        )
    return Reading(int(window), int(context))


def hidden_in_windows(body: Any, vectors: Any, reading: Reading) -> Any:
    """Computes the hidden states of rows of any length, each in the window that scores it.

    All windows of all rows are one batch, so that a graph needs no loop. The sizes may be known only when it runs. The
    word vectors are (batch, length, input_dim), and the hidden states (batch, length, dim).
    """
    batch, length = ops.shape(vectors)[:2]
    if reading.window is None or isinstance(length, int) and length <= reading.whole:
        return body(vectors, training=False)
    of = np if isinstance(length, int) else ops  # JAX needs sizes and places that are known when it traces
    places, last, block, first = of.arange(length), length - 1, reading.block, reading.context // reading.block
    number, steps = of.maximum(last // block - first, 0) + 1, of.minimum(reading.window, length)
    begins = reading.begin((of.arange(number) + first) * block, of.maximum)
    inside = of.minimum(begins[:, None] + of.arange(steps), last)
    windows = ops.reshape(ops.take(vectors, inside, axis=1), (batch * number, steps, vectors.shape[-1]))
    hidden = body(windows, training=False)
    hidden = ops.reshape(hidden, (batch, number * steps, hidden.shape[-1]))
    window = of.maximum(places // block - first, 0)
    return ops.take(hidden, window * steps + places - reading.begin(places, of.maximum), axis=1)


def state_grows(body: keras.Layer) -> bool:
    """Returns whether the state of a body, and with it the cost of a token, grows with the text, as in attention."""
    sizes = [[tuple(part.shape) for part in keras.tree.flatten(body.initial_state(1, length))] for length in (1, 2)]
    return sizes[0] != sizes[1]


def check_trained_length(length: Any) -> int | None:
    """Returns a trained length after checking that it is `None` or a positive integer."""
    if length is None or _is_whole(length) and 1 <= length < 2**31:
        return length
    raise ValueError(f"`trained_length` must be None or a whole number from 1. Received: trained_length={length!r}.")


def _is_whole(number):
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)
