"""Text generation: one word at a time from a step function and its state."""

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_finite, raise_not_finite
from keras_adaptive.special_words import PAD

SEGMENT = 128  # number of prompt tokens to read at a time; compilers compile for it and each power of two below it


def stream(read, step, initial_state, prompts, length, seed=None, stop=(), begin=lambda place: 0):
    """Yields ids that continue the prompts, until every row has `length` new words or has ended.

    The first array follows the shortest prompt. Rows of longer prompts yield the words of their prompts first. Where
    `begin` moves, the tokens of the new window are read again from the initial state.

    Args:
        read: Function `(tokens (batch, steps), state) → state`, which reads the tokens of the shortest prompt except
            for the last one.
        step: Deterministic function `(tokens (batch, 1), state, uniform (3, batch)) → (ids (batch,), …, state)`, which
            draws by the numbers `uniform` in [0, 1); −1 says that there are no probabilities. Further results before
            the state are yielded with the ids. The third numbers of `uniform` are for words that are drawn again.
        initial_state: Function `() → state` before the first token of a window.
        prompts: List of int32 arrays (prompt length,).
        length: Number of words to add.
        seed: Seed of NumPy's generator, so that the draws do not depend on the backend. Optional.
        stop: Ids of words that end a row when they are drawn; the row then yields padding. Optional.
        begin: Function from the place of a word to the place of the first token that it sees, as `Reading.begin`.

    Yields:
        An int32 array (batch,), or a tuple of this array and the further results of the step, NumPy arrays (batch, …).

    Raises:
        ValueError: If the probabilities of a step are not finite.
    """
    random = np.random.default_rng(seed)
    (again,) = random.spawn(1)
    lengths = [len(prompt) for prompt in prompts]
    tokens = list(np.stack([prompt[: min(lengths)] for prompt in prompts], axis=1))  # an array (batch,) for each place
    ended, first, state = np.zeros(len(prompts), bool), None, None
    for place in range(min(lengths), max(lengths) + length):
        if first != begin(place - 1):  # the place of the token to read next
            first, state = begin(place - 1), initial_state()
            window = np.stack(tokens[first:], axis=1)
            for part in segments(window.shape[1] - 1):
                state = read(ops.convert_to_tensor(window[:, part]), state)
        uniform = random.random((2, len(prompts)), dtype="float32")
        uniform = np.concatenate([uniform, again.random((1, len(prompts)), dtype="float32")])
        ids, *results, state = step(ops.convert_to_tensor(tokens[-1][:, None]), state, ops.convert_to_tensor(uniform))
        prompted = [prompt[place : place + 1] for prompt in prompts]  # the word of the prompt, if it is that long
        drawn = ops.convert_to_numpy(ids)
        if (drawn < 0).any():
            raise_not_finite()
        drawn = np.where(ended, PAD, drawn).astype(drawn.dtype)
        ids = np.array([word[0] if len(word) else id for word, id in zip(prompted, drawn)], drawn.dtype)
        yield (ids, *map(ops.convert_to_numpy, results)) if results else ids
        ended |= np.isin(ids, stop) & [not len(word) for word in prompted]
        if ended.all():
            return
        tokens.append(ids)


def segments(length):
    """Yields the slices of a prompt to read at a time; their lengths are powers of two, so that few are compiled."""
    start = 0
    while start < length:
        size = min(SEGMENT, 1 << ((length - start).bit_length() - 1))
        yield slice(start, start + size)
        start += size


def by_sampler(sampler, step, initial_state, prompt, length, reading):
    """Continues prompts by a sampler of KerasHub.

    Args:
        sampler: A `keras_hub.samplers.Sampler`.
        step: Function `(tokens (batch, steps), state) → (log-probabilities (batch, words), hidden (batch, steps, dim),
            state)`.
        initial_state: Function `(batch size, length) → state`, whose tensors have the batch as their first axis.
        prompt: Int32 ids (batch, prompt length).
        length: Number of words to add.
        reading: The `Reading` that divides prompts and continuations into windows.
    """
    size = prompt.shape[1]
    total = size + length
    hidden, state = read_prompts(step, initial_state, prompt, total, reading)
    tokens = ops.convert_to_tensor(np.pad(prompt, [[0, 0], [0, length]]))
    function = next_word(step, initial_state, total, reading)
    tokens = sampler(function, tokens, cache=state, index=size, hidden_states=hidden)
    return ops.convert_to_numpy(tokens)[:, size:]


def read_prompts(step, initial_state, prompt, total, reading):
    """Reads prompts of one length, which a sampler of KerasHub then continues to `total` tokens; see `by_sampler`.

    Returns:
        `(hidden, state)`: the hidden states (batch, total, dim), 0 after the prompts, and the state before the last
        token, with which the sampler begins.
    """
    size, read = prompt.shape[1], []
    for begin, start, stop in reading.windows(size):
        state, parts = initial_state(len(prompt), reading.capacity(total)), []
        for part in segments(stop - begin - 1):
            _, hidden, state = step(ops.convert_to_tensor(prompt[:, begin:][:, part]), state)
            parts.append(hidden)
        log_probs, hidden, _ = step(ops.convert_to_tensor(prompt[:, stop - 1 : stop]), state)
        check_finite(ops.convert_to_numpy(log_probs))
        read.append(ops.concatenate([*parts, hidden], axis=1)[:, start - begin :])
    return ops.pad(ops.concatenate(read, axis=1), [[0, 0], [0, total - size], [0, 0]]), state


def next_word(step, initial_state, total, reading):
    """Returns the function `(tokens, state, index) → (log-probabilities, hidden, state)` that a sampler calls.

    `total` is the number of tokens of the prompts and their continuations; see `by_sampler` for the other arguments.
    """

    def like(new, old):
        """Gives the tensors of a state the sizes of another one, which a TensorFlow graph must know."""
        return keras.tree.map_structure(lambda new, old: ops.reshape(new, ops.shape(old)), new, old)

    def begun(tokens, state, place):
        """Returns the state before the token at `place`, where a window begins."""
        new = initial_state(ops.shape(tokens)[0], reading.capacity(total))
        for part in segments(reading.context):
            start = [0, place - reading.context + part.start]
            _, _, new = step(ops.slice(tokens, start, [ops.shape(tokens)[0], part.stop - part.start]), new)
        return like(new, state)

    def function(tokens, state, index):
        place = index - 1
        if total > reading.whole:
            moves = reading.begin(place, ops.maximum) > reading.begin(place - 1, ops.maximum)
            state = ops.cond(moves, lambda: begun(tokens, state, place), lambda: state)
        log_probs, hidden, new = step(ops.slice(tokens, [0, place], [ops.shape(tokens)[0], 1]), state)
        return log_probs, hidden[:, -1], like(new, state)

    return function
