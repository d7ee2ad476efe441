"""Text generation: one word at a time from a step function and its state."""

import keras
import numpy as np
from keras import ops

from keras_adaptive.special_words import PAD

SEGMENT = 512  # number of prompt tokens to read at a time, since attention compares each with all earlier tokens


def stream(read, step, state, prompts, length, seed=None, stop=None):
    """Yields ids that continue the prompts, until every row has `length` new words or has ended.

    The first array follows the shortest prompt. Rows of longer prompts yield the words of their prompts first.

    Args:
        read: Function `(tokens (batch, steps), state) → state`, which reads the tokens of the shortest prompt except
            for the last one.
        step: Deterministic function `(tokens (batch, 1), state, uniform (2, batch)) → (ids (batch,), …, state)`, which
            draws by the numbers `uniform` in [0, 1). Further results before the state are yielded with the ids.
        state: The state before the first token, with capacity for the longest prompt and `length` words.
        prompts: List of int32 arrays (prompt length,).
        length: Number of words to add.
        seed: Seed of NumPy's generator, so that the draws do not depend on the backend. Optional.
        stop: Id of a word that ends a row when it is drawn; the row then yields padding. Optional.

    Yields:
        An int32 array (batch,), or a tuple of this array and the further results of the step, NumPy arrays (batch, …).
    """
    random = np.random.default_rng(seed)
    lengths = [len(prompt) for prompt in prompts]
    tokens = np.stack([prompt[: min(lengths)] for prompt in prompts])
    for part in segments(min(lengths) - 1):
        state = read(ops.convert_to_tensor(tokens[:, part]), state)
    tokens = tokens[:, -1:]
    ended = np.zeros(len(prompts), bool)
    for place in range(min(lengths), max(lengths) + length):
        uniform = random.random((2, len(prompts)), dtype="float32")
        ids, *results, state = step(ops.convert_to_tensor(tokens), state, ops.convert_to_tensor(uniform))
        prompted = [prompt[place : place + 1] for prompt in prompts]  # the word of the prompt, if it is that long
        drawn = ops.convert_to_numpy(ids)
        drawn = np.where(ended, PAD, drawn).astype(drawn.dtype)
        ids = np.array([word[0] if len(word) else id for word, id in zip(prompted, drawn)], drawn.dtype)
        yield (ids, *map(ops.convert_to_numpy, results)) if results else ids
        ended |= (ids == stop) & [not len(word) for word in prompted]
        if ended.all():
            return
        tokens = ids[:, None]


def segments(length):
    """Yields the slices of a prompt to read at a time; their lengths are powers of two, so that few are compiled."""
    start = 0
    while start < length:
        size = min(SEGMENT, 1 << ((length - start).bit_length() - 1))
        yield slice(start, start + size)
        start += size


def by_sampler(sampler, step, initial_state, prompt, length):
    """Continues prompts by a sampler of KerasHub.

    Args:
        sampler: A `keras_hub.samplers.Sampler`.
        step: Function `(tokens (batch, steps), state) → (log-probabilities (batch, words), hidden (batch, steps, dim),
            state)`.
        initial_state: Function `(batch size, length) → state`, whose tensors have the batch as their first axis.
        prompt: Int32 ids (batch, prompt length).
        length: Number of words to add.

    Returns:
        A NumPy array (batch, length) of the new ids.
    """
    size = prompt.shape[1]
    total = size + length
    hidden, state = read_prompts(step, initial_state(len(prompt), total), prompt, total)
    tokens = ops.convert_to_tensor(np.pad(prompt, [[0, 0], [0, length]]))
    tokens = sampler(next_word(step), tokens, cache=state, index=size, hidden_states=hidden)
    return ops.convert_to_numpy(tokens)[:, size:]


def read_prompts(step, state, prompt, capacity):
    """Reads prompts of one length, which a sampler of KerasHub then continues.

    The tokens are read in segments whose lengths are powers of two up to 512, so that few lengths are compiled.

    Args:
        step: As in `by_sampler`.
        state: The state before the prompts.
        prompt: Int32 ids (batch, prompt length).
        capacity: Number of tokens of the prompts and their continuations.

    Returns:
        `(hidden, state)`: the hidden states (batch, capacity, dim), 0 after the prompts, and the state before the last
        token, with which the sampler begins.
    """
    size, read = prompt.shape[1], []
    for part in segments(size - 1):
        _, hidden, state = step(ops.convert_to_tensor(prompt[:, part]), state)
        read.append(hidden)
    _, hidden, _ = step(ops.convert_to_tensor(prompt[:, -1:]), state)
    hidden = ops.concatenate([*read, hidden], axis=1)
    return ops.pad(hidden, [[0, 0], [0, capacity - size], [0, 0]]), state


def next_word(step):
    """Returns the function `(tokens, state, index) → (log-probabilities, hidden, state)` that a sampler calls."""

    def function(tokens, state, index):
        token = ops.slice(tokens, [0, index - 1], [ops.shape(tokens)[0], 1])
        log_probs, hidden, new_state = step(token, state)
        # A TensorFlow graph must know the same sizes as before.
        new_state = keras.tree.map_structure(lambda new, old: ops.reshape(new, ops.shape(old)), new_state, state)
        return log_probs, hidden[:, -1], new_state

    return function
