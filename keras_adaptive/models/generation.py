"""Generation of words with a language model, from NumPy arrays of ids to NumPy arrays."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_adaptive.models import decoding
from keras_adaptive.models.prediction import Prediction, round_up
from keras_adaptive.models.reading import Reading, reading_of
from keras_adaptive.models.steering import FORBIDDEN, best_allowed, draw_allowed
from keras_adaptive.ops import long_rows
from keras_adaptive.special_words import EOS, PAD
from keras_adaptive.typing import Tensor

SAMPLERS = ("greedy", "random", "top_k", "top_p")  # implemented by this package
KERAS_HUB_SAMPLERS = ("beam", "contrastive")


class Generation(Prediction):
    """Base class of models that continue texts, with the `generate` and `stream` of a `LanguageModel`."""

    def generate(
        self,
        prompt: Tensor | Sequence[Sequence[int]],
        length: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | Sequence[int] | None = None,
        sampler: Any = None,
        *,
        top_p: float | None = None,
        stop: int | Sequence[int] | None = None,
        forbid: Sequence[int] = (),
        repetition_penalty: float = 1.0,
        reading: Reading | None = None,
    ) -> np.ndarray:
        """Continues prompts one word at a time, drawn from the exact distribution.

        A text that becomes longer than the rows of training is read in windows. Where a window is full, its second half
        is read again as the beginning of the next one.

        Args:
            prompt: Ids (batch, prompt length), at least one per row; or a list of rows of different lengths.
            length: Number of words to add to each row, at least 1.
            temperature: Divisor of the log-probabilities. 0 takes the most probable word.
            top_k: Number of the most probable words to draw among. Optional.
            seed: Integer or sequence of integers. It gives the same words on all backends, up to rounding. Optional.
            sampler: "greedy", "random", "top_k" or "top_p", short for the other arguments (with `top_k=5` or
                `top_p=0.1` by default); or "beam", "contrastive" or a `keras_hub.samplers.Sampler`, which has its own
                temperature and seed, computes the probabilities of all words and needs prompts of one length. Optional.
            top_p: Probability. The draw is among the fewest words whose probabilities add up to `top_p` (nucleus
                sampling). Optional.
            stop: Id of a word that ends a row, or several ids. Padding fills the rest of the row. Optional.
            forbid: Ids that are never drawn. The probabilities of the other words keep their ratios.
            repetition_penalty: Factor, at least 1, of the log-probabilities of the words that a row already contains,
                except `</s>`. 1 changes nothing.
            reading: The `Reading` that defines the windows, by default of `trained_length` tokens. Optional.

        Returns:
            A NumPy array (batch, length), int32, of the new ids.

        Raises:
            ValueError: If a number is out of range, or `sampler` is unknown or contradicts the other arguments.

        Reference:
            Keskar et al., CTRL: A Conditional Transformer Language Model for Controllable Generation, 2019, section
            4.1, for the repetition penalty.
        """
        _check_length(length)
        if sampler not in (None, *SAMPLERS):
            options = temperature, top_k, top_p, stop, repetition_penalty
            return self._generate_by(sampler, prompt, length, options, self._bias(forbid), reading)
        if sampler:
            _check_sampler(sampler, temperature, top_k, top_p)
            temperature = 0 if sampler == "greedy" else temperature
            top_k = 5 if sampler == "top_k" and top_k is None else top_k
            top_p = 0.1 if sampler == "top_p" and top_p is None else top_p
        prompts = self._prompts(prompt)
        choice = _Choice(temperature, top_k, top_p, forbid, repetition_penalty)
        steps = list(self._stream(prompts, length, choice, seed, stop, reading=reading))
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
        seed: int | Sequence[int] | None = None,
        *,
        top_p: float | None = None,
        stop: int | Sequence[int] | None = None,
        forbid: Sequence[int] = (),
        repetition_penalty: float = 1.0,
        alternatives: int = 0,
        reading: Reading | None = None,
    ) -> Iterator[np.ndarray | tuple[np.ndarray, ...]]:
        """Yields the words of `generate` as they are drawn, until all rows have ended.

        The first array follows the shortest prompt. Rows of longer prompts yield the words of their prompts first.

        Args:
            prompt, length, temperature, top_k, seed, top_p, stop, forbid, repetition_penalty, reading: As in
                `generate`.
            alternatives: Number of the most probable words to yield with every word; 0 for none.

        Yields:
            A NumPy array (batch,) of ids, one per step. With `alternatives` a tuple `(ids, log_probs, best_log_probs,
            best_ids)`: the log-probabilities (batch,) of the ids, and the most probable words and their
            log-probabilities, (batch, alternatives) each. Log-probabilities are in nats and exclude the temperature.
        """
        _check_length(length)
        prompts = self._prompts(prompt)
        choice = _Choice(temperature, top_k, top_p, forbid, repetition_penalty)
        return self._stream(prompts, length, choice, seed, stop, alternatives, reading)

    def _generate_by(self, sampler, prompt, length, options, bias, reading):
        if options != (1.0, None, None, None, 1.0):
            raise ValueError(
                "A sampler of KerasHub has its own options: leave out `temperature`, `top_k`, `top_p`, `stop` and "
                f"`repetition_penalty`. Received: {', '.join(map(repr, options))}."
            )
        if isinstance(sampler, str):
            if sampler not in KERAS_HUB_SAMPLERS:
                names = ", ".join((*SAMPLERS, *KERAS_HUB_SAMPLERS))
                raise ValueError(f"`sampler` must be one of {names}, or KerasHub's. Received: sampler={sampler!r}.")
            import keras_hub

            sampler = keras_hub.samplers.get(sampler)
        prompt = self._ids(prompt, "prompt")
        reading = reading or reading_of(self)
        next_log_probs, bias = self.compiled_next(), ops.convert_to_tensor(bias)

        def step(tokens, state):
            log_probs, *rest = next_log_probs(tokens, state)
            return log_probs + bias, *rest

        return decoding.by_sampler(sampler, step, self.body.initial_state, prompt, length, reading)

    def _stream(self, prompts, length, choice, seed, stop, alternatives=0, reading=None):
        choice.check()
        stops = self._checked_ids(stop, "stop")
        most = min(choice.top_k or self.vocabulary_size, self.vocabulary_size)
        top_p = 1.0 if choice.top_p is None else choice.top_p
        options = [ops.convert_to_tensor(choice.temperature, "float32"), ops.convert_to_tensor(most, "int32")]
        options.append(ops.convert_to_tensor(top_p, "float32"))
        factors = lambda tokens: []  # noqa: E731
        key, draw = self._draw(choice._replace(top_k=choice.top_k and most))
        if choice.is_steered:
            options.append(ops.convert_to_tensor(self._bias(choice.forbid)))
        if choice.penalizes:
            factors = _Factors(prompts, self.vocabulary_size, choice.repetition_penalty)

        read_token = self._reader([1])

        def step(tokens, state, uniform, *options):
            hidden, state = read_token(tokens, state)
            ids = draw(hidden[:, -1], uniform, *options)
            if not alternatives:
                return ids, state
            log_probs, _, _, *best = self.word_output.alternatives(hidden[:, -1], ids, alternatives)
            return ids, log_probs, *best, state

        read = self._compiled("read", lambda tokens, state: self(tokens, state=state)[1], [1])
        step = self._compiled(("step", key, alternatives), step, [1])
        reading = reading or reading_of(self)
        capacity = reading.capacity(max(map(len, prompts)) + length)
        return decoding.stream(
            read,
            lambda tokens, *arguments: step(tokens, *arguments, *options, *factors(tokens)),
            lambda: self.body.initial_state(len(prompts), capacity),
            prompts,
            length,
            seed,
            stops,
            reading.begin,
        )

    def _draw(self, choice):
        """Returns `(key, function)`, where `function(hidden, uniform, temperature, top_k, top_p)` draws ids.

        The numbers are arguments, so that one compiled function serves all values.
        """
        if choice.is_steered:
            return self._steered_draw(choice)
        temperature, top_k, top_p, *_ = choice
        output = self.word_output
        if temperature == 0:
            return "greedy", lambda hidden, uniform, *_: output.sample_from_uniform(hidden, uniform, 0)
        if top_k is not None or top_p is not None:
            top_k = top_k or self.vocabulary_size
            most = round_up(top_k, self.vocabulary_size)
            if top_p is None:
                return most, lambda *arguments: output.sample_top_k(*arguments[:-1], most)
            return ("top_p", most), lambda *arguments: output.sample_top_k(*arguments[:-1], most, arguments[-1])
        if temperature == 1:
            return "exact", lambda hidden, uniform, *_: output.sample_from_uniform(hidden, uniform[:2])
        return "tempered", lambda hidden, uniform, temperature, *_: output.sample_with_temperature(
            hidden, uniform, temperature
        )

    def _steered_draw(self, choice):
        """Returns `(key, function)` as `_draw`; the further arguments of the function change the log-probabilities.

        The function is `(hidden, uniform, temperature, top_k, top_p, bias, factors) → ids`, with `factors` only if
        the choice `penalizes`.
        """
        output, size = self.word_output, self.vocabulary_size
        temperature, top_k, top_p, forbid, _ = choice
        first, most = (round_up(min(count + len(forbid), size), size) for count in (1, top_k or size))

        def scores(hidden, bias, factors=1.0):
            return output.log_probs(hidden) * factors + bias

        def best_of(count, hidden, bias, *factors):
            if factors:
                return long_rows.top_k(scores(hidden, bias, *factors), count)
            return best_allowed(output, hidden, count, bias)

        def greedy(hidden, uniform, temperature, top_k, top_p, *steering):
            values, ids = best_of(first, hidden, *steering)
            return ops.where(ops.isnan(values), -1, ids)[..., 0]

        def best(hidden, uniform, temperature, top_k, p, *steering):
            best = best_of(most, hidden, *steering)
            return long_rows.draw_best(*best, uniform[0], temperature, top_k, None if top_p is None else p)

        def exact(hidden, uniform, temperature, top_k, top_p, bias):
            return draw_allowed(output, hidden, uniform, bias)

        def every(hidden, uniform, temperature, top_k, top_p, *steering):
            return long_rows.draw(long_rows.tempered(scores(hidden, *steering), temperature), uniform[0])

        if temperature == 0:
            kind = greedy
        elif top_k is not None or top_p is not None:
            kind = best
        else:
            kind = exact if temperature == 1 and not choice.penalizes else every
        return ("steered", kind.__name__, first, most, top_p is None, choice.penalizes), kind

    def _bias(self, forbid):
        """Returns what forbids words when it is added to log-probabilities: (vocabulary_size,) float32."""
        bias = np.zeros(self.vocabulary_size, "float32")
        bias[self._checked_ids(forbid, "forbid")] = FORBIDDEN
        if bias.all():
            raise ValueError("`forbid` must leave a word to draw. Received: all words.")
        return bias

    def _checked_ids(self, ids, name):
        """Returns an array (ids,) of one id, of several, or of none."""
        array = np.atleast_1d(np.asarray(() if ids is None else ids))
        if not array.size:
            return array.astype("int32")
        if array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= self.vocabulary_size:
            raise ValueError(f"`{name}` must hold ids from 0 to {self.vocabulary_size - 1}. Received: {name}={ids}.")
        return array

    def _prompts(self, prompt):
        """Returns a list of checked rows of ids."""
        if isinstance(prompt, list) and len({np.shape(row) for row in prompt}) > 1:
            return [self._ids([row], "prompt")[0] for row in prompt]
        return list(self._ids(prompt, "prompt"))


class _Choice(NamedTuple):
    """How the next word is chosen: arguments of `generate`."""

    temperature: float
    top_k: int | None
    top_p: float | None
    forbid: Sequence[int]
    repetition_penalty: float

    @property
    def penalizes(self):
        return self.repetition_penalty != 1

    @property
    def is_steered(self):
        return bool(len(self.forbid)) or self.penalizes

    def check(self):
        """Raises a `ValueError` if a number is out of range."""
        if not self.temperature >= 0 or (self.top_k is not None and self.top_k < 1):
            raise ValueError(
                "`temperature` must not be negative and `top_k` must be at least 1. "
                f"Received: temperature={self.temperature}, top_k={self.top_k}."
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"`top_p` must be above 0 and at most 1. Received: top_p={self.top_p}.")
        if not 1 <= self.repetition_penalty < math.inf:
            raise ValueError(
                "`repetition_penalty` must be a finite number of at least 1. "
                f"Received: repetition_penalty={self.repetition_penalty}."
            )


class _Factors:
    """Function that returns the factors of all log-probabilities, of rows whose next tokens it is told.

    Args:
        prompts: List of int32 arrays (prompt length,).
        vocabulary_size: Number of words.
        penalty: Factor of words that a row contains, except `</s>`.
    """

    def __init__(self, prompts, vocabulary_size, penalty):
        self.penalty, self.rows = penalty, np.arange(len(prompts))
        self.factors = np.ones((len(prompts), vocabulary_size), "float32")
        for row, prompt in enumerate(prompts):
            self._mark(row, prompt[: min(map(len, prompts))])

    def __call__(self, tokens):
        self._mark(self.rows, ops.convert_to_numpy(tokens)[:, 0])
        return [ops.convert_to_tensor(self.factors)]

    def _mark(self, rows, ids):
        known = np.minimum(ids, self.factors.shape[1] - 1)  # an unknown word that is read by its bytes
        self.factors[rows, known] = np.where((ids == known) & (ids != EOS), self.penalty, self.factors[rows, known])


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
