"""Prediction with a language model, from NumPy arrays of ids to NumPy arrays."""

import functools
import itertools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_finite, check_same_shape, non_finite
from keras_adaptive.backend.compiled import compiled, compiled_part
from keras_adaptive.models.checked_data import CheckedData, check_not_empty
from keras_adaptive.models.reading import Reading, reading_of
from keras_adaptive.models.shared_prefixes import shared_nll
from keras_adaptive.ops.word_ids import check_ids
from keras_adaptive.special_words import PAD
from keras_adaptive.typing import Tensor

LENGTH_STEP = 32  # `next_words` pads rows to multiples, since compilers compile for each length
CAPACITY_STEP = 512  # the capacity in tokens of a state that several segments share, for the same reason


class Prediction(keras.Model):
    """Base class of models with the predicting methods of a `LanguageModel`, which take and return NumPy arrays.

    The methods compile their functions once and keep them.

    Raises:
        ValueError: If a log-probability is infinite or NaN, because the weights have diverged.
    """

    def nll(
        self,
        tokens: Tensor,
        targets: Tensor,
        segment: int | None = None,
        report: Callable[[int, int], object] | None = None,
    ) -> np.ndarray:
        """Returns the negative log-likelihood of every target, in nats.

        Args:
            tokens: Input ids (batch, length).
            targets: Ids (batch, length), each the word that follows its token.
            segment: Number of tokens to compute at a time, by default all of them. Later segments continue from the
                state of earlier ones, so that the result is the same.
            report: Function `(number of segments done, number of segments)` to call after each segment. Optional.

        Returns:
            A NumPy array (batch, length), float32.

        Raises:
            ValueError: If the shapes differ, an id is outside the vocabulary, or `segment` is below 1.
        """
        if segment is not None:
            return self._in_segments("nll", self._nll, tokens, targets, segment, report)[0]
        tokens, targets = self._pair(tokens, targets)
        function = self._compiled("nll", lambda x, y: self.word_output.nll(self(x, training=False), y))
        nll = check_finite(ops.convert_to_numpy(function(tokens, targets)))
        if report:
            report(1, 1)
        return nll

    def nll_of_rows(self, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
        """Returns the negative log-likelihoods of rows of any lengths, and computes common beginnings once.

        Up to eight tokens are read at a time. Rows that agree in these and all earlier tokens are read as one row.

        Args:
            rows: Pairs `(tokens, targets)` of ids, each a list or an array (length,), as in `nll`.

        Returns:
            A float32 array (length,) for each row, in nats.

        Example:

        >>> model = transformer_lm(1_000, dim=16, num_blocks=1, num_heads=2, ffn_dim=32, cutoffs=())
        >>> one, other = model.nll_of_rows([([2, 7, 8], [7, 8, 2]), ([2, 7, 9, 5], [7, 9, 5, 2])])
        >>> one.shape, other.shape
        ((3,), (4,))
        """
        pairs = [tuple(ids[0] for ids in self._pair([tokens], [targets])) for tokens, targets in rows]
        return shared_nll(self._compiled("shared_prefixes", self._nll_after), self.body, pairs) if pairs else []

    def _nll_after(self, tokens, targets, parents, state):
        """Computes the losses of the next targets of rows, each of which continues a row of the state."""
        state = keras.tree.map_structure(lambda part: ops.take(part, parents, axis=0), state)
        hidden, state = self(tokens, state=state)
        return self.word_output.nll(hidden, targets), state

    def nll_and_hidden(
        self,
        tokens: Tensor,
        targets: Tensor,
        segment: int | None = None,
        report: Callable[[int, int], object] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the negative log-likelihood of every target and the hidden state before it.

        Arguments are those of `nll`.

        Returns:
            `(nll, hidden)`, two NumPy arrays (batch, length) and (batch, length, dim).
        """
        segment = segment or np.shape(tokens)[1]
        return self._in_segments("nll_and_hidden", self._nll_and_hidden, tokens, targets, segment, report)

    def nll_and_keys(
        self,
        tokens: Tensor,
        targets: Tensor,
        segment: int | None = None,
        report: Callable[[int, int], object] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the negative log-likelihood of every target, and the key of its place in a `Memory`.

        Arguments are those of `nll`.

        Returns:
            `(nll, keys)`, two NumPy arrays (batch, length) and (batch, length, dim), float32.
        """
        segment = segment or np.shape(tokens)[1]
        return self._in_segments("nll", self._nll, tokens, targets, segment, report, keys=True)

    def keys(self, tokens: Tensor) -> np.ndarray:
        """Returns the keys of `nll_and_keys` alone, a NumPy array (batch, length, dim), without probabilities.

        Args:
            tokens: Input ids (batch, length).
        """
        function = lambda tokens: ops.cast(self.body.call_with_keys(self._vectors(tokens))[1], "float32")  # noqa: E731
        return check_finite(ops.convert_to_numpy(self._compiled("keys", function)(self._ids(tokens, "tokens"))))

    def nll_of_segments(
        self, segments: Iterable[tuple[Tensor, Tensor]], rows: int, hidden: bool = False, keys: bool = False
    ) -> Iterator[np.ndarray | tuple[np.ndarray, np.ndarray]]:
        """Yields the negative log-likelihoods of segments, each of which continues the rows of the previous one.

        Args:
            segments: Iterable of `(tokens, targets)`, as in `nll`, which is read one segment at a time.
            rows: Number of rows of each segment.
            hidden: Whether to yield the hidden states too.
            keys: Whether to yield the keys of a `Memory` too.

        Yields:
            A NumPy array (rows, length of the segment), float32, in nats; or `(nll, hidden)` as in `nll_and_hidden`, or
            `(nll, keys)` as in `nll_and_keys`.
        """
        pairs = itertools.starmap(self._pair, segments)
        name, measure = ("nll_and_hidden", self._nll_and_hidden) if hidden else ("nll", self._nll)
        parts = self._measured(name, measure, pairs, self.body.initial_state(rows), keys)
        return (tuple(part) if hidden or keys else part[0] for part in parts)

    def _nll(self, hidden, targets):
        return [self.word_output.nll(hidden, targets)]

    def _nll_and_hidden(self, hidden, targets):
        return [self.word_output.nll(hidden, targets), ops.cast(hidden, "float32")]

    def log_probs(self, tokens: Tensor) -> np.ndarray:
        """Returns the log-probability of every word at every position.

        Args:
            tokens: Ids (batch, length).

        Returns:
            A NumPy array (batch, length, vocabulary), float32.
        """
        tokens = self._ids(tokens, "tokens")
        function = self._compiled("log_probs", lambda x: self.word_output.log_probs(self(x, training=False)))
        return check_finite(ops.convert_to_numpy(function(tokens)))

    def predict(self, x: Any, **kwargs: Any) -> np.ndarray:
        """Returns the log-probability of every word as the next word of each row.

        `log_probs` returns the log-probabilities at all positions, an array (batch, length, vocabulary), for small
        batches. `model(tokens)` returns the hidden states of all positions.

        Args:
            x: Token ids (batch, length), or anything that `keras.Model.predict` accepts.
            **kwargs: Other arguments of `keras.Model.predict`, such as `batch_size`.

        Returns:
            A NumPy array (batch, vocabulary), float32.
        """
        check_not_empty(x)
        return check_finite(self._next_word().predict(self._checked(x, "tokens"), **kwargs))

    def predict_on_batch(self, x: Tensor) -> np.ndarray:
        """Returns the result of `predict` for a single batch."""
        check_not_empty(x)
        return check_finite(self._next_word().predict_on_batch(self._checked(x, "tokens")))

    def export(
        self, filepath: str | os.PathLike[str], format: str = "tf_saved_model", *args: Any, **kwargs: Any
    ) -> Any:
        """Exports the function of `predict`, as `keras.Model.export` does.

        `keras_adaptive.export.export_saved_model` writes a SavedModel that scores text and generates it.

        Args:
            filepath: Path to write to.
            format: A format of Keras other than `"onnx"`.
            *args: Other arguments of `keras.Model.export`.
            **kwargs: Other arguments of `keras.Model.export`.

        Raises:
            ValueError: If a weight is not finite, or the format is `"onnx"`. Nothing is written in this case.
        """
        refuse_onnx(format)
        if weight := non_finite(self.weights):
            raise ValueError(f"A model to export must have finite weights. Received: infinity or NaN in {weight}.")
        return self._next_word().export(filepath, format, *args, **kwargs)

    def _next_word(self):
        """Returns the functional model from token ids to the log-probabilities (batch, vocabulary) of the next word."""

        def make():
            return CheckedData(self.inputs[0], self.word_output(self.outputs[0][:, -1]), name=self.name)

        return self._functions.get("next_word", make)

    def score(self, tokens: Tensor, targets: Tensor, segment: int = 512) -> tuple[np.ndarray, np.ndarray]:
        """Returns the log-probability (in nats) and the rank of every target.

        Args:
            tokens: Input ids (batch, length).
            targets: Ids (batch, length), each the word that follows its token.
            segment: Number of tokens to compute at a time. Later segments continue from the state of earlier ones.

        Returns:
            `(log_probs, ranks)`, two NumPy arrays (batch, length); rank 1 is the most probable word.
        """
        return self._in_segments("score", self.word_output.score, tokens, targets, segment)

    def alternatives(self, tokens: Tensor, targets: Tensor, k: int, segment: int = 512) -> tuple[np.ndarray, ...]:
        """Returns the score of every target, the entropy of its distribution, and the k most probable words.

        Args:
            tokens, targets, segment: As in `score`.
            k: Number of words, at most `vocabulary_size`.

        Returns:
            `(log_probs, ranks, entropies, best_log_probs, best_ids)`, NumPy arrays: three (batch, length) and two
            (batch, length, k). Log-probabilities and entropies are in nats, and the most probable word comes first.
        """
        most = round_up(k, self.vocabulary_size)
        function = lambda hidden, targets: self.word_output.alternatives(hidden, targets, most)  # noqa: E731
        *scores, best, ids = self._in_segments(("alternatives", most), function, tokens, targets, segment)
        return *scores, best[..., :k], ids[..., :k]

    def next_words(
        self, tokens: Tensor, k: int, segment: int = 512, reading: Reading | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the k most probable next words of each row.

        Args:
            tokens: Ids (batch, length). Of long rows only the last window is read.
            k: Number of words, at most `vocabulary_size`.
            segment: Number of tokens to compute at a time, as in `score`.
            reading: The `Reading` that defines the windows, by default of `trained_length` tokens. Optional.

        Returns:
            `(log_probs, ids)`, two NumPy arrays (batch, k). Log-probabilities are in nats, and the most probable word
            comes first.
        """
        tokens, most = self._ids(tokens, "tokens"), round_up(k, self.vocabulary_size)
        tokens = tokens[:, (reading or reading_of(self)).begin(tokens.shape[1] - 1) :]
        length, last = tokens.shape[1], np.array([[(tokens.shape[1] - 1) % segment]], "int32")
        padded = padded_length(length, LENGTH_STEP, self.body.max_length)
        tokens = np.pad(tokens, [[0, 0], [0, padded - length]], constant_values=PAD)
        function = lambda hidden, place: self.word_output.top_k(ops.take(hidden, place[0, 0], axis=1), most)  # noqa: E731
        pairs = ((tokens[:, start : start + segment], last) for start in range(0, length, segment))
        parts = self._measured(("next_words", most), function, pairs, self.body.initial_state(*tokens.shape))
        *_, (log_probs, ids) = parts
        return log_probs[:, :k], ids[:, :k]

    def _vectors(self, tokens):
        """Returns what the body reads."""
        return self.word_input(tokens)

    def _in_segments(self, name, measure, tokens, targets, segment, report=None, keys=False):
        """Returns the arrays (batch, length) of `measure(hidden, targets)`, computed segment by segment."""
        tokens, targets = self._pair(tokens, targets)
        if segment < 1:
            raise ValueError(f"`segment` must be at least 1 token. Received: segment={segment}.")
        rows, length = tokens.shape
        slices = [slice(start, start + segment) for start in range(0, length, segment)]
        pairs, parts = ((tokens[:, part], targets[:, part]) for part in slices), []
        if len(slices) > 1:
            length = padded_length(length, CAPACITY_STEP, self.body.max_length)
        for part in self._measured(name, measure, pairs, self.body.initial_state(rows, length), keys):
            parts.append(part)
            if report:
                report(len(parts), len(slices))
        return tuple(np.concatenate(segments, axis=1) for segments in zip(*parts))

    def _measured(self, name, measure, pairs, state, keys=False):
        """Yields the list of arrays of `measure(hidden, targets)`, and of keys, for each pair `(tokens, targets)`."""

        def step(tokens, targets, state):
            if not keys:
                hidden, state = self(tokens, state=state)
                return *measure(hidden, targets), state
            hidden, found, state = self.body.step_with_keys(self._vectors(tokens), state)
            return *measure(hidden, targets), ops.cast(found, "float32"), state

        make = functools.partial(compiled, step, self.variables, [2], quick_start=True)
        function = self._functions.get(("segments", name, *["keys"] * keys), make)
        for tokens, targets in pairs:
            *part, state = function(tokens, targets, state)
            yield [check_finite(ops.convert_to_numpy(array)) for array in part]

    def next_log_probs(self, tokens: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Computes the log-probabilities of the next word, the hidden states of all tokens, and the state after them.

        Args:
            tokens: Tensor of ids (batch, length).
            state: The body's state before the tokens.

        Returns:
            `(log_probs, hidden, state)`: (batch, vocabulary), (batch, length, dim) and the state after the tokens.
        """
        hidden, state = self._reader()(tokens, state)
        return self.word_output.log_probs(hidden[:, -1]), hidden, state

    def compiled_next(self) -> Callable[..., Any]:
        """Returns the compiled function `next_log_probs`."""
        return self._compiled("next", self.next_log_probs)

    def _checked(self, ids, name):
        """Returns the ids after checking arrays; data sets and generators are not checked."""
        return check_ids(ids, self._size(name), name) if isinstance(ids, (np.ndarray, list)) else ids

    def _size(self, name):
        return self.vocabulary_size if name == "targets" else self.input_vocabulary_size

    def _ids(self, ids, name):
        ids = check_ids(ids, self._size(name), name)
        if ids.ndim != 2 or not ids.size:
            raise ValueError(f"`{name}` must have shape (batch, length) and not be empty. Received: shape={ids.shape}.")
        return ids

    def _pair(self, tokens, targets):
        """Returns the ids of the tokens and the targets after checking both."""
        tokens, targets = self._ids(tokens, "tokens"), self._ids(targets, "targets")
        check_same_shape(targets, tokens.shape, "targets", "`tokens`")
        return tokens, targets

    def _reader(self, donate_argnums=()):
        """Returns the function `(tokens, state) → (hidden, state)`, a part of a function to compile."""
        make = lambda: compiled_part(lambda tokens, state: self(tokens, state=state), self.variables, donate_argnums)  # noqa: E731
        return self._functions.get(("reader", *donate_argnums), make)

    def _compiled(self, key, function, donate_argnums=()):
        return self._functions.get(key, lambda: compiled(function, self.variables, donate_argnums))


def refuse_onnx(format):
    """Raises a `ValueError` if the format to export is ONNX, which Keras would write on some backends only."""
    if format == "onnx":
        raise ValueError(
            "A `LanguageModel` is exported to ONNX by `keras_adaptive.export.export_onnx(model, codec, folder)`, on "
            "every backend. Received: format='onnx'."
        )


def round_up(k, most):
    """Rounds a number of words up to a power of ten or to `most`, so that few functions are compiled.

    A number that is out of range does not change; the output layer rejects it.
    """
    return min(10 ** len(str(k - 1)), most) if 1 < k <= most else k


def padded_length(length, step, most):
    """Returns a length rounded up to a multiple of `step`, at most `most` (or `None`), so that few are compiled."""
    return int(max(min(-(-length // step) * step, most or np.inf), length))


class Cache:
    """Cache of values by key. It is not a dict, because Keras tracks the layers in a model's dicts."""

    def __init__(self) -> None:
        self._made = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns the value of a key; the first call computes it by `make()`."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]
