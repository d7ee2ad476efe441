import keras
from keras import ops

from keras_adaptive.layers.bodies.causal_attention import CausalAttention
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.initializers import fan_in_uniform
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout

NORM_EPSILON = 1e-5
ACTIVATIONS = {
    "relu": ops.relu,
    "relu_squared": lambda x: ops.square(ops.relu(x)),
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_tanh": lambda x: ops.gelu(x, approximate=True),
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


@keras.saving.register_keras_serializable(package="keras_adaptive")
class TransformerBlock(keras.layers.Layer):
    """Pre-norm block: x += drop(attention(norm(x))); x += drop(W₂·drop(relu(W₁·norm(x) + b₁)) + b₂).

    Baevski & Auli 2019, section 4.1. Feed-forward weights and biases start from U(±1/√fan_in). With
    `normalize_first=False` post-norm, as in Vaswani et al. 2017: x = norm(x + drop(attention(x))), and so on.

    Args:
        ffn_dim: width of the feed-forward layer.
        num_heads: attention heads; must divide the dimension of the input.
        dropout: rate on both branches, in training.
        attention_dropout: rate on the attention probabilities.
        relu_dropout: rate behind the ReLU, or the other activation.
        activation: "relu", "relu_squared", "gelu" (exact), "gelu_tanh" (its approximation), "tanh" or "linear".
        normalize_first: whether the norms stand before the branches or behind the sums.

    Input and output shape: (batch, length, dim).

    Raises:
        ValueError: on an unknown activation.
    """

    def __init__(
        self,
        ffn_dim,
        num_heads,
        dropout=0.0,
        attention_dropout=0.0,
        relu_dropout=0.0,
        activation="relu",
        normalize_first=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if activation not in ACTIVATIONS:
            raise ValueError(f"`activation` must be one of {list(ACTIVATIONS)}. Received: {activation!r}.")
        self.ffn_dim = ffn_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.relu_dropout = relu_dropout
        self.activation = activation
        self.normalize_first = normalize_first
        policy = {"dtype": self.dtype_policy}
        self.attention_norm = keras.layers.LayerNormalization(epsilon=NORM_EPSILON, **policy)
        self.attention = CausalAttention(num_heads, attention_dropout, **policy)
        self.ffn_norm = keras.layers.LayerNormalization(epsilon=NORM_EPSILON, **policy)
        self._drop = SeededDropout(dropout, **policy)
        self._drop_relu = SeededDropout(relu_dropout, **policy)

    def build(self, input_shape):
        dim = input_shape[-1]
        self.ffn_in = self._dense(self.ffn_dim, dim, activation=ACTIVATIONS[self.activation], name="ffn_in")
        self.ffn_out = self._dense(dim, self.ffn_dim, name="ffn_out")
        for layer in (self.attention_norm, self.attention, self.ffn_norm, self.ffn_in):
            layer.build(input_shape)
        self.ffn_out.build((*input_shape[:-1], self.ffn_dim))
        self.built = True

    def _dense(self, units, fan_in, **kwargs):
        uniform = fan_in_uniform(fan_in)
        return FlatDense(
            units, kernel_initializer=uniform, bias_initializer=uniform.clone(), dtype=self.dtype_policy, **kwargs
        )

    def call(self, x, training=None):
        mixed = self.attention(self._before(self.attention_norm, x), training=training)
        x = self._behind(self.attention_norm, x + self._drop(mixed, training=training))
        return self._feed_forward(x, training)

    def initial_state(self, batch_size, length, dim):
        """The attention's empty cache."""
        return self.attention.initial_state(batch_size, length, dim)

    def step(self, x, state, position):
        """As `call` for `x` (batch, steps, dim) at `position`, given the cache of everything before."""
        mixed, state = self.attention.step(self._before(self.attention_norm, x), state, position)
        x = self._behind(self.attention_norm, x + mixed)
        return self._feed_forward(x, training=False), state

    def _feed_forward(self, x, training):
        inner = self._drop_relu(self.ffn_in(self._before(self.ffn_norm, x)), training=training)
        return self._behind(self.ffn_norm, x + self._drop(self.ffn_out(inner), training=training))

    def _before(self, norm, x):
        return norm(x) if self.normalize_first else x

    def _behind(self, norm, x):
        return x if self.normalize_first else norm(x)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "ffn_dim": self.ffn_dim,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "relu_dropout": self.relu_dropout,
            "activation": self.activation,
            "normalize_first": self.normalize_first,
        }
