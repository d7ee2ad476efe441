import keras
from keras import ops

from keras_adaptive.backend.slice_update import slice_update
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.initializers import fan_in_uniform
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout


@keras.saving.register_keras_serializable(package="keras_adaptive")
class CausalAttention(keras.layers.Layer):
    """Multi-head self-attention of every position to itself and to those before it.

    Queries are scaled by head_dim^−½, the softmax runs in float32, dropout falls on the probabilities, and all four
    projections have biases. `step` continues from a cache of keys and values and equals the full pass.

    Vaswani et al. 2017, section 3.2. Query, key and value start from xavier uniform with gain 1/√2 and biases
    U(±1/√dim), the output from xavier uniform and 0.

    Args:
        num_heads: must divide the dimension of the input.
        dropout: rate on the attention probabilities, in training.

    Input and output shape: (batch, length, dim).

    Raises:
        ValueError: when `num_heads` does not divide the dimension.
    """

    def __init__(self, num_heads, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout = dropout
        self._drop = SeededDropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        dim = input_shape[-1]
        if dim % self.num_heads:
            raise ValueError(f"`num_heads` must divide the dimension {dim}. Received: num_heads={self.num_heads}.")
        for name in ("query", "key", "value"):
            setattr(self, name, self._dense(dim, name, "fan_avg", 0.5, fan_in_uniform(dim)))
        self.out = self._dense(dim, "out", "fan_avg", 1.0, "zeros")
        for layer in (self.query, self.key, self.value, self.out):
            layer.build(input_shape)
        self.built = True

    def _dense(self, dim, name, mode, scale, bias):
        kernel = keras.initializers.VarianceScaling(scale, mode, "uniform")
        return FlatDense(dim, kernel_initializer=kernel, bias_initializer=bias, name=name, dtype=self.dtype_policy)

    def call(self, x, training=None):
        query, key, value = self._project(x)
        return self._attend(query, key, value, 0, training)

    def initial_state(self, batch_size, length, dim):
        """Empty keys and values for `length` positions: two arrays (batch, length, heads, head_dim)."""
        shape = (batch_size, length, self.num_heads, dim // self.num_heads)
        return ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.compute_dtype)

    def step(self, x, state, position):
        """Attention of `x` (batch, steps, dim), which stands at `position` and behind, to the cache and itself."""
        query, key, value = self._project(x)
        keys, values = (slice_update(cache, new, position) for cache, new in zip(state, (key, value)))
        return self._attend(query, keys, values, position, training=False), (keys, values)

    def _project(self, x):
        shape = (ops.shape(x)[0], ops.shape(x)[1], self.num_heads, x.shape[-1] // self.num_heads)
        query, key, value = (ops.reshape(layer(x), shape) for layer in (self.query, self.key, self.value))
        return query * shape[-1] ** -0.5, key, value

    def _attend(self, query, key, value, position, training):
        """Query i, at `position` + i, sees keys 0 to `position` + i. Shapes (batch, length, heads, head_dim)."""
        if keras.config.backend() == "torch" and isinstance(position, int) and not (training and self.dropout):
            mixed = _torch_attention(query, key, value)
        else:
            scores = ops.cast(ops.einsum("bqhd,bkhd->bhqk", query, key), "float32")
            places = position + ops.arange(ops.shape(query)[1])
            visible = ops.arange(ops.shape(key)[1])[None, :] <= places[:, None]
            probabilities = ops.softmax(ops.where(visible, scores, -1e9), axis=-1)
            probabilities = self._drop(ops.cast(probabilities, self.compute_dtype), training=training)
            mixed = ops.einsum("bhqk,bkhd->bqhd", probabilities, value)
        return self.out(ops.reshape(mixed, (*ops.shape(query)[:2], query.shape[-1] * self.num_heads)))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads, "dropout": self.dropout}


def _torch_attention(query, key, value):
    """torch's own kernel for a pass from the first position, a third of the time of the products on a CPU."""
    from torch.nn.functional import scaled_dot_product_attention

    heads_first = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return scaled_dot_product_attention(*heads_first, is_causal=True, scale=1.0).transpose(1, 2)
