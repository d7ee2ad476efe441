"""Prediction with a language model, from NumPy arrays of ids to NumPy arrays."""

import itertools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive import generation
from keras_adaptive.backend.checks import check_same_shape, non_finite
from keras_adaptive.backend.compiled import compiled
from keras_adaptive.ops.bands import check_ids
from keras_adaptive.special_words import PAD
from keras_adaptive.typing import Tensor

SAMPLERS = ("greedy", "random", "top_k", "top_p")  # implemented by this package
KERAS_HUB_SAMPLERS = ("beam", "contrastive")
LENGTH_STEP = 32  # rows of `next_words` are padded to multiples, since compilers compile for each length


class Prediction(keras.Model):
    """Base class of models with the predicting methods of a `LanguageModel`, which take and return NumPy arrays.

    The methods compile their functions once and keep them.
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
            measure = lambda hidden, targets: [self.word_output.nll(hidden, targets)]  # noqa: E731
            return self._in_segments("nll", measure, tokens, targets, segment, report)[0]
        tokens, targets = self._pair(tokens, targets)
        function = self._compiled("nll", lambda x, y: self.word_output.nll(self(x, training=False), y))
        nll = ops.convert_to_numpy(function(tokens, targets))
        if report:
            report(1, 1)
        return nll

    def nll_of_segments(self, segments: Iterable[tuple[Tensor, Tensor]], rows: int) -> Iterator[np.ndarray]:
        """Yields the negative log-likelihoods of segments, each of which continues the rows of the previous one.

        Args:
            segments: Iterable of `(tokens, targets)`, as in `nll`, which is read one segment at a time.
            rows: Number of rows of each segment.

        Yields:
            A NumPy array (rows, length of the segment), float32, in nats.
        """
        pairs = itertools.starmap(self._pair, segments)
        measure = lambda hidden, targets: [self.word_output.nll(hidden, targets)]  # noqa: E731
        return (part[0] for part in self._measured("nll", measure, pairs, self.body.initial_state(rows)))

    def log_probs(self, tokens: Tensor) -> np.ndarray:
        """Returns the log-probability of every word at every position.

        Args:
            tokens: Ids (batch, length).

        Returns:
            A NumPy array (batch, length, vocabulary), float32.
        """
        tokens = self._ids(tokens, "tokens")
        function = self._compiled("log_probs", lambda x: self.word_output.log_probs(self(x, training=False)))
        return ops.convert_to_numpy(function(tokens))

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
        return self._next_word().predict(self._checked(x, "tokens"), **kwargs)

    def predict_on_batch(self, x: Tensor) -> np.ndarray:
        """Returns the result of `predict` for a single batch."""
        return self._next_word().predict_on_batch(self._checked(x, "tokens"))

    def export(self, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        """Exports the function of `predict`, as `keras.Model.export` does.

        `keras_adaptive.export.export_saved_model` writes a SavedModel that scores text and generates it.

        Args:
            filepath: Path to write to.
            *args: Other arguments of `keras.Model.export`.
            **kwargs: Other arguments of `keras.Model.export`.

        Raises:
            ValueError: If a weight is not finite. Nothing is written in this case.
        """
        if weight := non_finite(self.weights):
            raise ValueError(f"A model to export must have finite weights. Received: infinity or NaN in {weight}.")
        return self._next_word().export(filepath, *args, **kwargs)

    def _next_word(self):
        """Returns the functional model from token ids to the log-probabilities (batch, vocabulary) of the next word."""

        def make():
            return keras.Model(self.inputs[0], self.word_output(self.outputs[0][:, -1]), name=self.name)

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
        most = _round_up(k, self.vocabulary_size)
        function = lambda hidden, targets: self.word_output.alternatives(hidden, targets, most)  # noqa: E731
        *scores, best, ids = self._in_segments(("alternatives", most), function, tokens, targets, segment)
        return *scores, best[..., :k], ids[..., :k]

    def next_words(self, tokens: Tensor, k: int, segment: int = 512) -> tuple[np.ndarray, np.ndarray]:
        """Returns the words that most probably follow each row.

        Args:
            tokens: Ids (batch, length).
            k: Number of words.
            segment: As in `score`.

        Returns:
            `(log_probs, ids)`, two NumPy arrays (batch, k). The most probable word comes first.
        """
        tokens, most = self._ids(tokens, "tokens"), _round_up(k, self.vocabulary_size)
        length, last = tokens.shape[1], np.array([[(tokens.shape[1] - 1) % segment]], "int32")
        padded = min(-(-length // LENGTH_STEP) * LENGTH_STEP, max(self.body.max_length or np.inf, length))
        tokens = np.pad(tokens, [[0, 0], [0, int(padded) - length]], constant_values=PAD)
        function = lambda hidden, place: self.word_output.top_k(ops.take(hidden, place[0, 0], axis=1), most)  # noqa: E731
        pairs = ((tokens[:, start : start + segment], last) for start in range(0, length, segment))
        parts = self._measured(("next_words", most), function, pairs, self.body.initial_state(*tokens.shape))
        *_, (log_probs, ids) = parts
        return log_probs[:, :k], ids[:, :k]

    def _in_segments(self, name, measure, tokens, targets, segment, report=None):
        """Returns the arrays (batch, length) of `measure(hidden, targets)`, computed segment by segment."""
        tokens, targets = self._pair(tokens, targets)
        if segment < 1:
            raise ValueError(f"`segment` must be at least 1 token. Received: segment={segment}.")
        slices = [slice(start, start + segment) for start in range(0, tokens.shape[1], segment)]
        pairs, parts = ((tokens[:, part], targets[:, part]) for part in slices), []
        for part in self._measured(name, measure, pairs, self.body.initial_state(*tokens.shape)):
            parts.append(part)
            if report:
                report(len(parts), len(slices))
        return tuple(np.concatenate(segments, axis=1) for segments in zip(*parts))

    def _measured(self, name, measure, pairs, state):
        """Yields the list of arrays of `measure(hidden, targets)` for each pair `(tokens, targets)`."""

        def step(tokens, targets, state):
            hidden, state = self(tokens, state=state)
            return *measure(hidden, targets), state

        step = self._compiled(("segments", name), step, [2])
        for tokens, targets in pairs:
            *part, state = step(tokens, targets, state)
            yield list(map(ops.convert_to_numpy, part))

    def generate(
        self,
        prompt: Tensor | Sequence[Sequence[int]],
        length: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
        sampler: Any = None,
        *,
        top_p: float | None = None,
        stop: int | None = None,
    ) -> np.ndarray:
        """Continues prompts one word at a time, drawn from the exact distribution.

        Args:
            prompt: Ids (batch, prompt length), at least one per row; or a list of rows of different lengths.
            length: Number of words to add to each row, at least 1.
            temperature: Divisor of the log-probabilities. 0 takes the most probable word.
            top_k: Number of the most probable words to draw among. Optional.
            seed: Integer. A seed gives the same words on every backend, up to rounding. Optional.
            sampler: "greedy", "random", "top_k" or "top_p", short for the other arguments (with `top_k=5` or
                `top_p=0.1` by default); or "beam", "contrastive" or a `keras_hub.samplers.Sampler`, which has its own
                temperature and seed, computes the probabilities of all words and needs prompts of one length. Optional.
            top_p: Probability. The draw is among the fewest words whose probabilities add up to `top_p` (nucleus
                sampling). Optional.
            stop: Id of a word that ends a row. Padding fills the rest of the row. Optional.

        Returns:
            A NumPy array (batch, length), int32, of the new ids.

        Raises:
            ValueError: If a number is out of range, or `sampler` is unknown or contradicts the other arguments.
        """
        _check_length(length)
        if sampler not in (None, *SAMPLERS):
            return self._generate_by(sampler, prompt, length, (temperature, top_k, top_p, stop))
        if sampler:
            _check_sampler(sampler, temperature, top_k, top_p)
            temperature = 0 if sampler == "greedy" else temperature
            top_k = 5 if sampler == "top_k" and top_k is None else top_k
            top_p = 0.1 if sampler == "top_p" and top_p is None else top_p
        prompts = self._prompts(prompt)
        steps = list(self._stream(prompts, length, temperature, top_k, seed, top_p, stop))
        starts = np.array(list(map(len, prompts))) - min(map(len, prompts))
        missing = max(starts) + length - len(steps)  # all rows may have ended
        words = np.pad(np.stack(steps, axis=1), [[0, 0], [0, missing]], constant_values=PAD)
        return np.take_along_axis(words, starts[:, None] + np.arange(length), axis=1)

    def stream(
        self,
        prompt: Tensor | Sequence[Sequence[int]],
        length: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
        *,
        top_p: float | None = None,
        stop: int | None = None,
        alternatives: int = 0,
    ) -> Iterator[np.ndarray | tuple[np.ndarray, ...]]:
        """Yields the words of `generate` as they are drawn: one array (batch,) per step, until all rows have ended.

        The first array follows the shortest prompt; rows of longer prompts repeat their own words until they end.

        Args:
            prompt, length, temperature, top_k, seed, top_p, stop: As in `generate`.
            alternatives: Number of the most probable words to yield with every word.

        Yields:
            An array (batch,) of ids or, with `alternatives`, `(ids, log_probs, best_log_probs, best_ids)`. `log_probs`
            (batch,) belongs to the drawn words, and (batch, alternatives) to the most probable ones. They are the
            model's own, in nats, whatever the temperature.
        """
        _check_length(length)
        return self._stream(self._prompts(prompt), length, temperature, top_k, seed, top_p, stop, alternatives)

    def _generate_by(self, sampler, prompt, length, options):
        if options != (1.0, None, None, None):
            raise ValueError(
                "A sampler of KerasHub has its own options: leave out `temperature`, `top_k`, `top_p` and `stop`. "
                f"Received: {', '.join(map(repr, options))}."
            )
        if isinstance(sampler, str):
            if sampler not in KERAS_HUB_SAMPLERS:
                names = ", ".join((*SAMPLERS, *KERAS_HUB_SAMPLERS))
                raise ValueError(f"`sampler` must be one of {names}, or a sampler of KerasHub. Received: {sampler!r}.")
            import keras_hub

            sampler = keras_hub.samplers.get(sampler)
        prompt = self._ids(prompt, "prompt")
        return generation.by_sampler(sampler, self.compiled_next(), self.body.initial_state, prompt, length)

    def _stream(self, prompts, length, temperature, top_k, seed, top_p, stop, alternatives=0):
        if not temperature >= 0 or (top_k is not None and top_k < 1):
            raise ValueError(
                "`temperature` must not be negative and `top_k` must be at least 1. "
                f"Received: temperature={temperature}, top_k={top_k}."
            )
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"`top_p` must be above 0 and at most 1. Received: top_p={top_p}.")
        if stop is not None and not 0 <= stop < self.vocabulary_size:
            raise ValueError(f"`stop` must be an id from 0 to {self.vocabulary_size - 1}. Received: stop={stop}.")
        most = min(top_k or self.vocabulary_size, self.vocabulary_size)
        key, draw = self._draw(temperature, top_k and most, top_p)
        options = [ops.convert_to_tensor(temperature, "float32"), ops.convert_to_tensor(most, "int32")]
        options.append(ops.convert_to_tensor(1.0 if top_p is None else top_p, "float32"))

        def step(tokens, state, uniform, *options):
            hidden, state = self(tokens, state=state)
            ids = draw(hidden[:, -1], uniform, *options)
            if not alternatives:
                return ids, state
            log_probs, _, _, *best = self.word_output.alternatives(hidden[:, -1], ids, alternatives)
            return ids, log_probs, *best, state

        read = self._compiled("read", lambda tokens, state: self(tokens, state=state)[1], [1])
        step = self._compiled(("step", key, alternatives), step, [1])
        state = self.body.initial_state(len(prompts), max(map(len, prompts)) + length)
        return generation.stream(
            read, lambda *arguments: step(*arguments, *options), state, prompts, length, seed, stop
        )

    def _draw(self, temperature, top_k, top_p):
        """Returns `(key, function)`, where `function(hidden, uniform, temperature, top_k, top_p)` draws ids.

        The numbers are arguments, so that one compiled function serves all values.
        """
        output = self.word_output
        if temperature == 0:
            return "greedy", lambda hidden, *_: output.top_k(hidden, 1)[1][..., 0]
        if top_k is not None or top_p is not None:
            top_k = top_k or self.vocabulary_size
            most = _round_up(top_k, self.vocabulary_size)
            if top_p is None:
                return most, lambda *arguments: output.draw_among(*arguments[:-1], most)
            return ("top_p", most), lambda *arguments: output.draw_among(*arguments[:-1], most, arguments[-1])
        if temperature == 1:
            return "exact", lambda hidden, uniform, *_: output.sample_with(hidden, uniform)
        return "tempered", lambda hidden, uniform, temperature, *_: output.draw_tempered(hidden, uniform, temperature)

    def next_log_probs(self, tokens, state):
        """Returns the log-probabilities of the next word, the hidden states of all tokens, and the state after them.

        Args:
            tokens: Tensor of ids (batch, length).
            state: The body's state before them.

        Returns:
            `(log_probs, hidden, state)`: (batch, vocabulary), (batch, length, dim) and the state after the tokens.
        """
        hidden, state = self(tokens, state=state)
        return self.word_output.log_probs(hidden[:, -1]), hidden, state

    def compiled_next(self):
        """Returns `next_log_probs`, compiled."""
        return self._compiled("next", self.next_log_probs)

    def _prompts(self, prompt):
        """Returns a list of checked rows of ids."""
        if isinstance(prompt, list) and len({np.shape(row) for row in prompt}) > 1:
            return [self._ids([row], "prompt")[0] for row in prompt]
        return list(self._ids(prompt, "prompt"))

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

    def _compiled(self, key, function, donate_argnums=()):
        return self._functions.get(key, lambda: compiled(function, self.variables, donate_argnums))


def _round_up(k, most):
    """Rounds a number of words up to a power of ten or to `most`, so that few functions are compiled.

    A number that is out of range does not change; the output layer rejects it.
    """
    return min(10 ** len(str(k - 1)), most) if 1 < k <= most else k


def _check_sampler(sampler, temperature, top_k, top_p):
    """Raises a `ValueError` if a sampler's name contradicts the other arguments."""
    holds = {
        "`top_k`": top_k is None or sampler == "top_k",
        "`top_p`": top_p is None or sampler == "top_p",
        "`temperature`": temperature in (0, 1) if sampler == "greedy" else temperature != 0,
    }
    if not all(holds.values()):
        wrong = next(name for name in holds if not holds[name])
        raise ValueError(
            f"The sampler {sampler!r} contradicts {wrong}: leave out one of the two. "
            f"Received: temperature={temperature}, top_k={top_k}, top_p={top_p}."
        )


def _check_length(length):
    if length < 1:
        raise ValueError(f"`length`, the number of words to add, must be at least 1. Received: length={length}.")


class Cache:
    """Cache of values by key. It is not a dict, because Keras tracks the layers in a model's dicts."""

    def __init__(self) -> None:
        self._made = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns the value of a key; the first call computes it by `make()`."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]
