from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.slice_update import slice_update
from keras_adaptive.layers.bodies.mixer import Mixer
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.initializers import fan_in_uniform
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout
from keras_adaptive.ops.attention import alibi_slopes, block_size, causal_attention
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class CausalAttention(Mixer):
    """Causal multi-head self-attention: every position attends to itself and to the positions before it.

    Queries are scaled by head_dim^−½, the softmax runs in float32, and dropout is applied to the probabilities. The
    state of `step` is a cache of keys and values.

    With a `window`, a position attends to itself and to the `window` - 1 positions before it. The cost of training is
    then linear in the length. The state holds the keys and values of the last `window` - 1 tokens only, so that the
    cost of a step does not grow with the number of tokens.

    With `alibi`, a score loses the distance in tokens times a slope of the head (`alibi_slopes`). The order of tokens
    is then known without vectors of positions, also at distances that training has not seen.

    Query, key and value kernels start from Xavier uniform with gain 1/√2 and their biases from U(±1/√dim); the output
    kernel starts from Xavier uniform and its bias from 0.

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
        super().__init__(**kwargs)
        if window is not None and window < 1:
            raise ValueError(
                "`window` must be at least 1, the position itself, or `None` for all positions before it. "
                f"Received: window={window}."
            )
        self.num_heads = num_heads
        self.window = window
        self.use_bias = use_bias
        self.alibi = alibi
        self.dropout = dropout
        self._drop = SeededDropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        dim = input_shape[-1]
        if self.num_heads < 1 or dim % self.num_heads:
            raise ValueError(f"`num_heads` must divide the dimension {dim}. Received: num_heads={self.num_heads}.")
        for name in ("query", "key", "value"):
            setattr(self, name, self._dense(dim, name, "fan_avg", 0.5, fan_in_uniform(dim)))
        self.out = self._dense(dim, "out", "fan_avg", 1.0, "zeros")
        for layer in (self.query, self.key, self.value, self.out):
            layer.build(input_shape)
        self.built = True

    def _dense(self, dim, name, mode, scale, bias):
        kernel = keras.initializers.VarianceScaling(scale, mode, "uniform")
        options = {"use_bias": self.use_bias, "name": name, "dtype": self.dtype_policy}
        return FlatDense(dim, kernel_initializer=kernel, bias_initializer=bias, **options)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        query, key, value = self._project(x)
        return self._attend(query, key, value, 0, training)

    def initial_state(self, batch_size: int, length: int | None, dim: int) -> tuple[Tensor, Tensor]:
        """Returns an empty cache: two tensors (batch, length, heads, head_dim), or (batch, window - 1, …)."""
        if self.window is not None:
            length = self.window - 1
        elif length is None:
            raise ValueError("`length` must be the capacity of the cache in tokens. Received: length=None.")
        shape = (batch_size, length, self.num_heads, dim // self.num_heads)
        return ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.compute_dtype)

    def step(self, x: Tensor, state: Any, position: int | Tensor, training: bool | None = False) -> tuple[Tensor, Any]:
        query, *keys_and_values = self._project(x)
        if self.window is None:
            seen = state = [slice_update(cache, array, position) for cache, array in zip(state, keys_and_values)]
        else:
            seen = [ops.concatenate(pair, axis=1) for pair in zip(state, keys_and_values)]
            state = [array[:, ops.shape(x)[1] :] for array in seen]
        return self._attend(query, seen[0], seen[1], position, training), tuple(state)

    def _project(self, x):
        shape = (ops.shape(x)[0], ops.shape(x)[1], self.num_heads, x.shape[-1] // self.num_heads)
        query, key, value = (ops.reshape(layer(x), shape) for layer in (self.query, self.key, self.value))
        return query * shape[-1] ** -0.5, key, value

    def _attend(self, query, key, value, position, training):
        drop = (lambda probabilities: self._drop(probabilities, training=True)) if training and self.dropout else None
        slopes = alibi_slopes(self.num_heads) if self.alibi else None
        mixed = causal_attention(query, key, value, position, drop, self.window, slopes)
        return self.out(ops.reshape(mixed, (*ops.shape(query)[:2], query.shape[-1] * self.num_heads)))

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
