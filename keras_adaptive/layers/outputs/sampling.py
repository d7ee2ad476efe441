from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_adaptive.ops.long_rows import draw, draw_best, tempered
from keras_adaptive.typing import Tensor


class Sampling:
    """Methods of an `Output` that draw words from its exact distribution."""

    vocabulary_size: int
    top_k: Callable[..., Any]
    log_probs: Callable[..., Any]
    compute_draw: Callable[..., Any]
    _rows: Callable[..., Any]

    def sample(
        self,
        hidden: Tensor,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | keras.random.SeedGenerator | None = None,
    ) -> Tensor:
        """Draws one word per hidden state from the exact distribution.

        Args:
            hidden: (…, hidden_dim).
            temperature: Divisor of the log-probabilities: below 1 sharpens, 0 takes the most probable word.
            top_k: Number of the most probable words to draw among. Optional.
            seed: Int or `keras.random.SeedGenerator`.

        Returns:
            (…) int32 ids; −1 where the probabilities are NaN.
        """
        uniform = keras.random.uniform((2, *ops.shape(hidden)[:-1]), dtype="float32", seed=seed)
        return self.sample_from_uniform(hidden, uniform, temperature, top_k)

    def sample_from_uniform(
        self, hidden: Tensor, uniform: Tensor, temperature: float = 1.0, top_k: int | None = None
    ) -> Tensor:
        """Draws as `sample` does, deterministically from given random numbers.

        Args:
            hidden: (…, hidden_dim).
            uniform: (2, …) in [0, 1).
            temperature: Python number, as in `sample`. A compiled step is compiled again for each value; pass a tensor
                to `sample_with_temperature` or `sample_top_k` instead.
            top_k: Python number, as in `sample`.

        Returns:
            (…) int32 ids.
        """
        if not temperature >= 0:  # or NaN
            raise ValueError(f"`temperature` must not be negative. Received: temperature={temperature}.")
        if temperature == 0:
            log_probs, ids = self.top_k(hidden, 1)
            return ops.where(ops.isnan(log_probs), -1, ids)[..., 0]
        if top_k is not None:
            return self.sample_top_k(hidden, uniform, temperature, top_k, min(top_k, self.vocabulary_size))
        if temperature != 1:
            return self.sample_with_temperature(hidden, uniform, temperature)
        uniform = ops.reshape(uniform, [2, -1])
        return ops.reshape(self.compute_draw(self._rows(hidden), uniform), ops.shape(hidden)[:-1])

    def sample_with_temperature(self, hidden: Tensor, uniform: Tensor, temperature: float | Tensor) -> Tensor:
        """Draws from all words at a positive temperature.

        Args:
            hidden: (…, hidden_dim).
            uniform: (2, …) in [0, 1).
            temperature: A number or a scalar tensor.

        Returns:
            (…) int32 ids.
        """
        return draw(tempered(self.log_probs(hidden), temperature), uniform[0])

    def sample_top_k(
        self,
        hidden: Tensor,
        uniform: Tensor,
        temperature: float | Tensor,
        top_k: int | Tensor,
        max_k: int,
        top_p: float | Tensor | None = None,
    ) -> Tensor:
        """Draws from the `top_k` most probable words at a positive `temperature`.

        Args:
            hidden: (…, hidden_dim).
            uniform: (2, …) in [0, 1).
            temperature: A number or a scalar tensor.
            top_k: A number or a scalar tensor, from 1 to `max_k`. 1 takes the most probable word.
            max_k: Python number, an upper bound of `top_k`.
            top_p: A number or a scalar tensor. The draw is then among the fewest words whose probabilities, at this
                temperature and among the `top_k` words, add up to `top_p` (nucleus sampling). Optional.

        Returns:
            (…) int32 ids.
        """
        return draw_best(*self.top_k(hidden, max_k), uniform[0], temperature, top_k, top_p)
