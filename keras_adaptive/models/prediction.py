"""Prediction with a language model, from NumPy arrays of ids to NumPy arrays."""

import keras
import numpy as np
from keras import ops

from keras_adaptive import generation
from keras_adaptive.backend.checks import check_same_shape
from keras_adaptive.backend.compiled import compiled
from keras_adaptive.ops.bands import check_ids


class Prediction(keras.Model):
    """Methods of a `LanguageModel` that take and return NumPy arrays. Compiled functions are kept."""

    def nll(self, tokens, targets, segment=None):
        """Returns the negative log-likelihood of every target, in nats.

        Args:
            tokens: Input ids (batch, length).
            targets: Ids (batch, length), each the word that follows its token.
            segment: Number of tokens to compute at a time, all by default. Later segments continue from the state of
                earlier ones, so that the result is the same.

        Returns:
            A NumPy array (batch, length), float32.
        """
        if segment is not None:
            return self._in_segments("nll", lambda *given: [self.word_output.nll(*given)], tokens, targets, segment)[0]
        tokens, targets = self._ids(tokens, "tokens"), self._ids(targets, "targets")
        check_same_shape(targets, tokens.shape, "targets", "`tokens`")
        function = self._compiled("nll", lambda x, y: self.word_output.nll(self(x, training=False), y))
        return ops.convert_to_numpy(function(tokens, targets))

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

    def export(self, filepath, *args, **kwargs):
        """Exports what `predict` computes, as `keras.Model.export` does.

        `keras_adaptive.export.export_saved_model` writes a SavedModel that takes text, scores it, and generates.

        Args:
            filepath: Path to write to.
            *args: As in `keras.Model.export`.
            **kwargs: As in `keras.Model.export`.
        """
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

    def _in_segments(self, name, measure, tokens, targets, segment):
        """Returns the arrays (batch, length) that `measure(hidden, targets)` returns, in segments of the rows."""
        tokens, targets = self._ids(tokens, "tokens"), self._ids(targets, "targets")
        check_same_shape(targets, tokens.shape, "targets", "`tokens`")

        def step(tokens, targets, state):
            hidden, state = self(tokens, state=state)
            return *measure(hidden, targets), state

        step = self._compiled(("segments", name), step, [2])
        state, parts = self.body.initial_state(*tokens.shape), []
        for start in range(0, tokens.shape[1], segment):
            *part, state = step(tokens[:, start : start + segment], targets[:, start : start + segment], state)
            parts.append(list(map(ops.convert_to_numpy, part)))
        return tuple(np.concatenate(segments, axis=1) for segments in zip(*parts))

    def generate(self, prompt, length, temperature=1.0, top_k=None, seed=None, sampler=None):
        """Continues prompts one word at a time, each drawn from the exact distribution.

        Args:
            prompt: Ids (batch, prompt length), at least one per row; or a list of rows of any lengths.
            length: Number of words to add to each row, at least 1.
            temperature: Divisor of the log-probabilities. 0 takes the most probable word.
            top_k: Number of the most probable words to draw among. Optional.
            seed: Integer. One seed gives the same words on every backend, up to rounding.
            sampler: A `keras_hub.samplers.Sampler` to use instead, with its own temperature and seed. It sees the
                probabilities of all words: beam search, top-p, contrastive search. All prompts must have one length.

        Returns:
            A NumPy array (batch, length), int32, of the new ids.
        """
        _check_length(length)
        if sampler is not None:
            prompt, step = self._ids(prompt, "prompt"), self._compiled("next", self._next)
            return generation.by_sampler(sampler, step, self.body.initial_state, prompt, length)
        prompts = self._prompts(prompt)
        words = np.stack(list(self._stream(prompts, length, temperature, top_k, seed)), axis=1)
        starts = np.array(list(map(len, prompts))) - min(map(len, prompts))
        return np.take_along_axis(words, starts[:, None] + np.arange(length), axis=1)

    def stream(self, prompt, length, temperature=1.0, top_k=None, seed=None):
        """Yields the words of `generate` as they are drawn: one array (batch,) per step.

        The first array follows the shortest prompt; rows of longer prompts repeat their own words until they end.
        """
        _check_length(length)
        return self._stream(self._prompts(prompt), length, temperature, top_k, seed)

    def _stream(self, prompts, length, temperature, top_k, seed):
        if not temperature >= 0 or (top_k is not None and top_k < 1):
            raise ValueError(
                "`temperature` must not be negative and `top_k` must be at least 1. "
                f"Received: temperature={temperature}, top_k={top_k}."
            )
        key, draw = self._draw(temperature, top_k)
        how = ops.convert_to_tensor(temperature, "float32"), ops.convert_to_tensor(top_k or 0, "int32")

        def step(tokens, state, uniform, temperature, top_k):
            hidden, state = self(tokens, state=state)
            return draw(hidden[:, -1], uniform, temperature, top_k), state

        step = self._compiled(("step", key), step, [1])
        state = self.body.initial_state(len(prompts), max(map(len, prompts)) + length)
        return generation.stream(lambda *arguments: step(*arguments, *how), state, prompts, length, seed)

    def _draw(self, temperature, top_k):
        """Returns `(key, function)`, where `function(hidden, uniform, temperature, top_k)` draws ids.

        Temperature and `top_k` are arguments, so that one compiled function serves all of their values.
        """
        output = self.word_output
        if temperature == 0:
            return "greedy", lambda hidden, uniform, temperature, top_k: output.top_k(hidden, 1)[1][..., 0]
        if top_k is not None:
            most = min(10 ** len(str(top_k - 1)) if top_k > 1 else 1, self.vocabulary_size)  # so that few are compiled
            return most, lambda *arguments: output.draw_among(*arguments, most)
        if temperature == 1:
            return "exact", lambda hidden, uniform, temperature, top_k: output.sample_with(hidden, uniform)
        return "tempered", lambda hidden, uniform, temperature, top_k: output.draw_tempered(
            hidden, uniform, temperature
        )

    def _next(self, tokens, state):
        """Returns the log-probabilities of the next word, the hidden states of all tokens, and the state after them."""
        hidden, state = self(tokens, state=state)
        return self.word_output.log_probs(hidden[:, -1]), hidden, state

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

    def _compiled(self, key, function, donate_argnums=()):
        return self._functions.get(key, lambda: compiled(function, self.variables, donate_argnums))


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
