from typing import Any

import keras
from keras import ops

from keras_adaptive.layers.bodies.mixer import Mixer
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.initializers import fan_in_uniform
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout
from keras_adaptive.typing import Shape, Tensor


class Attention(Mixer):
    """Base class of attention layers: projections to queries, keys, values and outputs, and dropout.

    Query, key and value kernels start from Xavier uniform with gain 1/√2 and their biases from U(±1/√dim); the output
    kernel starts from Xavier uniform and its bias from 0.

    Args:
        num_heads: Number of heads; must divide the dimension of the input.
        dropout: Dropout rate on the attention probabilities, in training.

    Attributes:
        use_bias: Whether the projections have biases.

    Raises:
        ValueError: If `num_heads` does not divide the dimension.
    """

    use_bias: bool = True

    def __init__(self, num_heads: int, *, dropout: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
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

    def _heads(self, vectors: Tensor) -> Tensor:
        """Divides vectors (…, dim) into those of the heads, (…, heads, head_dim)."""
        return ops.reshape(vectors, (*ops.shape(vectors)[:-1], self.num_heads, vectors.shape[-1] // self.num_heads))

    def _queries(self, x):
        query = self._heads(self.query(x))
        return query * query.shape[-1] ** -0.5

    def _dropped(self, training):
        """Returns the function that drops probabilities, or `None`."""
        return (lambda probabilities: self._drop(probabilities, training=True)) if training and self.dropout else None

    def _joined(self, mixed):
        """Returns the outputs (batch, steps, dim) for the mixed values (batch, steps, heads, head_dim)."""
        return self.out(ops.reshape(mixed, (*ops.shape(mixed)[:2], mixed.shape[-1] * self.num_heads)))
