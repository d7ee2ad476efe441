"""Text generation: one word at a time from a step function and its state."""

import keras
import numpy as np


def stream(step, state, prompt, length, seed=None):
    """Yields `length` arrays (batch,) of ids that continue `prompt`.

    Args:
        step: `(tokens (batch, steps), state, uniform (2, batch)) → (ids (batch,), state)`, a deterministic function
            that draws by the numbers of `uniform`, each in [0, 1).
        state: the state before the first token, with room for the prompt and `length` words.
        prompt: int32 ids (batch, prompt length).
        length: number of words to yield.
        seed: of NumPy's generator, which makes the draws independent of the backend.
    """
    random = np.random.default_rng(seed)
    tokens = prompt
    for _ in range(length):
        uniform = random.random((2, len(prompt)), dtype="float32")
        ids, state = step(keras.ops.convert_to_tensor(tokens), state, keras.ops.convert_to_tensor(uniform))
        ids = keras.ops.convert_to_numpy(ids)
        yield ids
        tokens = ids[:, None]
