"""Generation of words with a language model, from NumPy arrays of ids to NumPy arrays."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_adaptive import generation
from keras_adaptive.models.prediction import Prediction, round_up
from keras_adaptive.models.reading import Reading, reading_of
from keras_adaptive.special_words import PAD
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
        stop: int | None = None,
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
            stop: Id of a word that ends a row. Padding fills the rest of the row. Optional.
            reading: The `Reading` that defines the windows, by default of `trained_length` tokens. Optional.

        Returns:
            A NumPy array (batch, length), int32, of the new ids.

        Raises:
            ValueError: If a number is out of range, or `sampler` is unknown or contradicts the other arguments.
        """
        _check_length(length)
        if sampler not in (None, *SAMPLERS):
            return self._generate_by(sampler, prompt, length, (temperature, top_k, top_p, stop), reading)
        if sampler:
            _check_sampler(sampler, temperature, top_k, top_p)
            temperature = 0 if sampler == "greedy" else temperature
            top_k = 5 if sampler == "top_k" and top_k is None else top_k
            top_p = 0.1 if sampler == "top_p" and top_p is None else top_p
        prompts = self._prompts(prompt)
        steps = list(self._stream(prompts, length, temperature, top_k, seed, top_p, stop, reading=reading))
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
        stop: int | None = None,
        alternatives: int = 0,
        reading: Reading | None = None,
    ) -> Iterator[np.ndarray | tuple[np.ndarray, ...]]:
        """Yields the words of `generate` as they are drawn, until all rows have ended.

        The first array follows the shortest prompt. Rows of longer prompts yield the words of their prompts first.

        Args:
            prompt, length, temperature, top_k, seed, top_p, stop, reading: As in `generate`.
            alternatives: Number of the most probable words to yield with every word; 0 for none.

        Yields:
            A NumPy array (batch,) of ids, one per step. With `alternatives` a tuple `(ids, log_probs, best_log_probs,
            best_ids)`: the log-probabilities (batch,) of the ids, and the most probable words and their
            log-probabilities, (batch, alternatives) each. Log-probabilities are in nats and exclude the temperature.
        """
        _check_length(length)
        prompts = self._prompts(prompt)
        return self._stream(prompts, length, temperature, top_k, seed, top_p, stop, alternatives, reading)

    def _generate_by(self, sampler, prompt, length, options, reading):
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
        reading = reading or reading_of(self)
        return generation.by_sampler(sampler, self.compiled_next(), self.body.initial_state, prompt, length, reading)

    def _stream(self, prompts, length, temperature, top_k, seed, top_p, stop, alternatives=0, reading=None):
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
        reading = reading or reading_of(self)
        capacity = reading.capacity(max(map(len, prompts)) + length)
        return generation.stream(
            read,
            lambda *arguments: step(*arguments, *options),
            lambda: self.body.initial_state(len(prompts), capacity),
            prompts,
            length,
            seed,
            stop,
            reading.begin,
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
            most = round_up(top_k, self.vocabulary_size)
            if top_p is None:
                return most, lambda *arguments: output.sample_top_k(*arguments[:-1], most)
            return ("top_p", most), lambda *arguments: output.sample_top_k(*arguments[:-1], most, arguments[-1])
        if temperature == 1:
            return "exact", lambda hidden, uniform, *_: output.sample_from_uniform(hidden, uniform)
        return "tempered", lambda hidden, uniform, temperature, *_: output.sample_with_temperature(
            hidden, uniform, temperature
        )

    def _prompts(self, prompt):
        """Returns a list of checked rows of ids."""
        if isinstance(prompt, list) and len({np.shape(row) for row in prompt}) > 1:
            return [self._ids([row], "prompt")[0] for row in prompt]
        return list(self._ids(prompt, "prompt"))


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
