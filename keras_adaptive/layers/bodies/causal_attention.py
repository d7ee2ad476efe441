from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.slice_update import slice_update
from keras_adaptive.layers.bodies.attention import Attention
from keras_adaptive.ops.attention import alibi_slopes, block_size, cached_attention, causal_attention
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class CausalAttention(Attention):
    """Causal multi-head self-attention: every position attends to itself and to the positions before it.

    Queries are scaled by head_dim^−½, the softmax runs in float32, and dropout is applied to the probabilities. The
    state of `step` is a cache of keys and values.

    With a `window`, a position attends to itself and to the `window` - 1 positions before it. The cost of training is
    then linear in the length. The state holds the keys and values of the last `window` - 1 tokens only, so that the
    cost of a step does not grow with the number of tokens.

    With `alibi`, a score loses the distance in tokens times a slope of the head (`alibi_slopes`). The order of tokens
    is then known without vectors of positions, also at distances that training has not seen.

    Args:
        num_heads: Number of heads; must divide the dimension of the input.
        window: Number of positions that each position attends to, itself included; `None` for all up to itself.
        use_bias: Whether the projections of queries, keys, values and outputs have biases.
        alibi: Whether scores have linear biases (ALiBi), which are not learned.
        dropout: Dropout rate on the attention probabilities, in training.

    Call arguments:
        x, training: As in `Mixer`.

    Raises:
        ValueError: If `num_heads` does not divide the dimension, or `window` is below 1.

    Reference:
        Vaswani et al., Attention Is All You Need, NIPS 2017, section 3.2; Sun and Iyyer, Revisiting Simple Neural
        Probabilistic Language Models, NAACL 2021, section 3.2 (windows, Transformer-C); Press et al., Train Short, Test
        Long, ICLR 2022, section 3 (ALiBi).

    Example:

    >>> attention = CausalAttention(num_heads=4, window=5)
    >>> tuple(attention(np.ones((2, 8, 16), "float32")).shape)
    (2, 8, 16)
    >>> keys, values = attention.initial_state(batch_size=2, length=None, dim=16)
    >>> tuple(keys.shape)  # the last 4 tokens
    (2, 4, 4, 4)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        window: int | None = None,
        use_bias: bool = True,
        alibi: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, dropout=dropout, **kwargs)
        if window is not None and window < 1:
            raise ValueError(
                "`window` must be at least 1, the position itself, or `None` for all positions before it. "
                f"Received: window={window}."
            )
        self.window = window
        self.use_bias = use_bias
        self.alibi = alibi

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        return self._attend(*self._project(x), 0, training)

    def initial_state(self, batch_size: int, length: int | None, dim: int) -> tuple[Tensor, Tensor]:
        """Returns an empty cache: two tensors (batch, heads, length, head_dim), or (batch, window - 1, heads, …)."""
        shape = [batch_size, length, self.num_heads, dim // self.num_heads]
        if self.window is not None:
            shape[1] = self.window - 1
        elif length is None:
            raise ValueError("`length` must be the capacity of the cache in tokens. Received: length=None.")
        else:
            shape[1:3] = self.num_heads, length
        return ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.compute_dtype)

    def step(self, x: Tensor, state: Any, position: int | Tensor, training: bool | None = False) -> tuple[Tensor, Any]:
        query, *new = self._project(x)
        if self.window is not None:
            seen = [ops.concatenate(pair, axis=1) for pair in zip(state, new)]
            return self._attend(query, *seen, position, training), tuple(array[:, ops.shape(x)[1] :] for array in seen)
        new = [ops.transpose(array, (0, 2, 1, 3)) for array in new]
        state = tuple(slice_update(cache, array, position, axis=2) for cache, array in zip(state, new))
        mixed = cached_attention(query, *state, position, self._dropped(training), self._slopes())
        return self._joined(mixed), state

    def _project(self, x):
        return self._queries(x), self._heads(self.key(x)), self._heads(self.value(x))

    def _attend(self, query, key, value, position, training):
        drop = self._dropped(training)
        return self._joined(causal_attention(query, key, value, position, drop, self.window, self._slopes()))

    def _slopes(self):
        return alibi_slopes(self.num_heads) if self.alibi else None

    def activations_per_token(self, length: int, dim: int) -> int:
        """Counts queries, keys, values and outputs, two rows of probabilities per head, and dropout's mask.

        With a window, a row covers two blocks, and keys and values are copied into pairs of blocks.
        """
        seen, copies = length, 0
        if self.window is not None and length > block_size(self.window):
            seen, copies = 2 * block_size(self.window), 4
        return (4 + copies) * dim + self.num_heads * seen * (2 + (self.dropout > 0))

    def get_config(self) -> dict[str, Any]:
        config = {"num_heads": self.num_heads, "window": self.window, "use_bias": self.use_bias}
        return {**super().get_config(), **config, "alibi": self.alibi, "dropout": self.dropout}
