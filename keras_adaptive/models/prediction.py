"""Prediction with a language model, from NumPy arrays of ids to NumPy arrays."""

import itertools

import keras
import numpy as np
from keras import ops

from keras_adaptive import generation
from keras_adaptive.backend.checks import check_same_shape, non_finite
from keras_adaptive.backend.compiled import compiled
from keras_adaptive.ops.bands import check_ids
from keras_adaptive.special_words import PAD

SAMPLERS = ("greedy", "random", "top_k", "top_p")  # computed here
KERAS_HUB_SAMPLERS = ("beam", "contrastive")
LENGTH_STEP = 32  # rows of `next_words` are padded to multiples, since compilers compile for each length


class Prediction(keras.Model):
    """Methods of a `LanguageModel` that take and return NumPy arrays. Compiled functions are kept."""

    def nll(self, tokens, targets, segment=None, report=None):
        """Returns the negative log-likelihood of every target, in nats.

        Args:
            tokens: Input ids (batch, length).
            targets: Ids (batch, length), each the word that follows its token.
            segment: Number of tokens to compute at a time, all by default. Later segments continue from the state of
                earlier ones, so that the result is the same.
            report: Function of the numbers of segments done and of all segments, called after each. Optional.

        Returns:
            A NumPy array (batch, length), float32.
        """
        if segment is not None:
            measure = lambda *given: [self.word_output.nll(*given)]  # noqa: E731
            return self._in_segments("nll", measure, tokens, targets, segment, report)[0]
        tokens, targets = self._pair(tokens, targets)
        function = self._compiled("nll", lambda x, y: self.word_output.nll(self(x, training=False), y))
        found = ops.convert_to_numpy(function(tokens, targets))
        if report:
            report(1, 1)
        return found

    def nll_of_segments(self, segments, rows):
        """Yields the negative log-likelihoods of segments, each of which continues the rows of the one before.

        Args:
            segments: Iterable of `(tokens, targets)`, as in `nll`. It may make one at a time.
            rows: Number of rows of each.

        Yields:
            A NumPy array (rows, length of the segment), float32.
        """
        pairs = itertools.starmap(self._pair, segments)
        measure = lambda *given: [self.word_output.nll(*given)]  # noqa: E731
        return (part[0] for part in self._measured("nll", measure, pairs, self.body.initial_state(rows)))

    def log_probs(self, tokens):
        """Returns the log-probability of every word at every position.

        Args:
            tokens: Ids (batch, length).

        Returns:
            A NumPy array (batch, length, vocabulary), float32.
        """
        tokens = self._ids(tokens, "tokens")
        function = self._compiled("log_probs", lambda x: self.word_output.log_probs(self(x, training=False)))
        return ops.convert_to_numpy(function(tokens))

    def predict(self, x, **kwargs):
        """Returns the log-probability of every word that may follow each row.

        All positions would need an array (batch, length, vocabulary): `log_probs` returns it for a batch that is small
        enough. The hidden states of all positions are `model(tokens)`.

        Args:
            x: Token ids (batch, length), or anything that `keras.Model.predict` accepts.
            **kwargs: The other arguments of `keras.Model.predict`, such as `batch_size`.

        Returns:
            A NumPy array (batch, vocabulary), float32.
        """
        return self._next_word().predict(self._checked(x, "tokens"), **kwargs)

    def predict_on_batch(self, x):
        """Returns what `predict` does, of a single batch."""
        return self._next_word().predict_on_batch(self._checked(x, "tokens"))

    def export(self, filepath, *args, **kwargs):
        """Exports what `predict` computes, as `keras.Model.export` does.

        `keras_adaptive.export.export_saved_model` writes a SavedModel that takes text, scores it, and generates.

        Args:
            filepath: Path to write to.
            *args: As in `keras.Model.export`.
            **kwargs: As in `keras.Model.export`.

        Raises:
            ValueError: If a weight is not finite. Nothing is written then.
        """
        if weight := non_finite(self.weights):
            raise ValueError(f"A model to export must have finite weights. Received: infinity or NaN in {weight}.")
        return self._next_word().export(filepath, *args, **kwargs)

    def _next_word(self):
        """Returns the functional model from token ids to the log-probabilities (batch, vocabulary) of the next word."""

        def make():
            return keras.Model(self.inputs[0], self.word_output(self.outputs[0][:, -1]), name=self.name)

        return self._functions.get("next_word", make)

    def score(self, tokens, targets, segment=512):
        """Returns the log-probability (in nats) and the rank of every target.

        Args:
            tokens: Input ids (batch, length).
            targets: Ids (batch, length), each the word that follows its token.
            segment: Number of tokens to compute at a time. Later segments continue from the state of earlier ones.

        Returns:
            `(log_probs, ranks)`, two NumPy arrays (batch, length); rank 1 is the most probable word.
        """
        return self._in_segments("score", self.word_output.score, tokens, targets, segment)

    def alternatives(self, tokens, targets, k, segment=512):
        """Returns the score of every target, the entropy of its place, and the words that the model prefers there.

        Args:
            tokens, targets, segment: As in `score`.
            k: Number of the most probable words.

        Returns:
            `(log_probs, ranks, entropies, best_log_probs, best_ids)`, NumPy arrays: three (batch, length) and two
            (batch, length, k). Log-probabilities and entropies are in nats, and the most probable word comes first.
        """
        most = _round_up(k, self.vocabulary_size)
        function = lambda hidden, targets: self.word_output.alternatives(hidden, targets, most)  # noqa: E731
        *scores, best, ids = self._in_segments(("alternatives", most), function, tokens, targets, segment)
        return *scores, best[..., :k], ids[..., :k]

    def next_words(self, tokens, k, segment=512):
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
        """Returns the arrays (batch, length) that `measure(hidden, targets)` returns, in segments of the rows."""
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
        """Yields the lists of arrays that `measure(hidden, targets)` returns, for pairs `(tokens, targets)`."""

        def step(tokens, targets, state):
            hidden, state = self(tokens, state=state)
            return *measure(hidden, targets), state

        step = self._compiled(("segments", name), step, [2])
        for tokens, targets in pairs:
            *part, state = step(tokens, targets, state)
            yield list(map(ops.convert_to_numpy, part))

    def generate(self, prompt, length, temperature=1.0, top_k=None, seed=None, sampler=None, *, top_p=None, stop=None):
        """Continues prompts one word at a time, each drawn from the exact distribution.

        Args:
            prompt: Ids (batch, prompt length), at least one per row; or a list of rows of any lengths.
            length: Number of words to add to each row, at least 1.
            temperature: Divisor of the log-probabilities. 0 takes the most probable word.
            top_k: Number of the most probable words to draw among. Optional.
            seed: Integer. One seed gives the same words on every backend, up to rounding.
            sampler: "greedy", "random", "top_k" or "top_p", short for the other arguments (with 5 words, or a
                probability of 0.1, unless they are given); or "beam", "contrastive" or a `keras_hub.samplers.Sampler`,
                which has a temperature and a seed of its own, sees the probabilities of all words and takes prompts of
                one length.
            top_p: Draws among the fewest words whose probabilities add up to `top_p` (nucleus sampling). Optional.
            stop: Id of a word after which a row ends. The rest of the row is padding. Optional.

        Returns:
            A NumPy array (batch, length), int32, of the new ids.

        Raises:
            ValueError: If a number is out of its range, `sampler` is unknown or cannot be combined with the others.
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
        words = list(self._stream(prompts, length, temperature, top_k, seed, top_p, stop))
        starts = np.array(list(map(len, prompts))) - min(map(len, prompts))
        missing = max(starts) + length - len(words)  # all rows may have ended
        words = np.pad(np.stack(words, axis=1), [[0, 0], [0, missing]], constant_values=PAD)
        return np.take_along_axis(words, starts[:, None] + np.arange(length), axis=1)

    def stream(self, prompt, length, temperature=1.0, top_k=None, seed=None, *, top_p=None, stop=None, alternatives=0):
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

    def _generate_by(self, sampler, prompt, length, others):
        if others != (1.0, None, None, None):
            raise ValueError(
                "A sampler of KerasHub has its own numbers: leave out `temperature`, `top_k`, `top_p` and `stop`. "
                f"Received: {', '.join(map(repr, others))}."
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
            raise ValueError(f"`top_p` must be a probability above 0. Received: top_p={top_p}.")
        if stop is not None and not 0 <= stop < self.vocabulary_size:
            raise ValueError(f"`stop` must be an id from 0 to {self.vocabulary_size - 1}. Received: stop={stop}.")
        most = min(top_k or self.vocabulary_size, self.vocabulary_size)
        key, draw = self._draw(temperature, top_k and most, top_p)
        how = [ops.convert_to_tensor(temperature, "float32"), ops.convert_to_tensor(most, "int32")]
        how.append(ops.convert_to_tensor(1.0 if top_p is None else top_p, "float32"))

        def step(tokens, state, uniform, *how):
            hidden, state = self(tokens, state=state)
            ids = draw(hidden[:, -1], uniform, *how)
            if not alternatives:
                return ids, state
            log_probs, _, _, *best = self.word_output.alternatives(hidden[:, -1], ids, alternatives)
            return ids, log_probs, *best, state

        read = self._compiled("read", lambda tokens, state: self(tokens, state=state)[1], [1])
        step = self._compiled(("step", key, alternatives), step, [1])
        state = self.body.initial_state(len(prompts), max(map(len, prompts)) + length)
        return generation.stream(read, lambda *one: step(*one, *how), state, prompts, length, seed, stop)

    def _draw(self, temperature, top_k, top_p):
        """Returns `(key, function)`, where `function(hidden, uniform, temperature, top_k, top_p)` draws ids.

        The numbers are arguments, so that one compiled function serves all of their values.
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
        """Returns the ids, checked if they are an array; data sets and generators pass unchecked."""
        return check_ids(ids, self._size(name), name) if isinstance(ids, (np.ndarray, list)) else ids

    def _size(self, name):
        return self.vocabulary_size if name == "targets" else self.input_vocabulary_size

    def _ids(self, ids, name):
        ids = check_ids(ids, self._size(name), name)
        if ids.ndim != 2 or not ids.size:
            raise ValueError(f"`{name}` must have shape (batch, length), neither of them 0. Received: {ids.shape}.")
        return ids

    def _pair(self, tokens, targets):
        """Returns the ids of tokens and of their targets after checking both."""
        tokens, targets = self._ids(tokens, "tokens"), self._ids(targets, "targets")
        check_same_shape(targets, tokens.shape, "targets", "`tokens`")
        return tokens, targets

    def _compiled(self, key, function, donate_argnums=()):
        return self._functions.get(key, lambda: compiled(function, self.variables, donate_argnums))


def _round_up(k, most):
    """Returns a number of words rounded up to a power of ten or to `most`, so that few functions are compiled.

    A number that is out of range stays, and the output refuses it.
    """
    return min(10 ** len(str(k - 1)), most) if 1 < k <= most else k


def _check_sampler(sampler, temperature, top_k, top_p):
    """Raises a ValueError if a sampler's name contradicts the other arguments."""
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
        raise ValueError(f"`length` must be at least 1 word to add. Received: length={length}.")


class Cache:
    """Values made once per key. It is not a dict, because Keras tracks the layers in a model's dicts."""

    def __init__(self):
        self._made = {}

    def get(self, key, make):
        """Returns the value of a key, made by `make()` at the first call."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]
