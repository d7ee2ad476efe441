from typing import Any, Self

import keras
from keras import ops

from keras_adaptive.layers.bodies.mixer import Mixer
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.initializers import fan_in_uniform
from keras_adaptive.layers.layer_normalization import LayerNormalization
from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout, in_training
from keras_adaptive.ops.relu import relu
from keras_adaptive.typing import Shape, Tensor

NORM_EPSILON = 1e-5
ACTIVATIONS = {
    "relu": relu,
    "relu_squared": lambda x: ops.square(ops.relu(x)),
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_tanh": lambda x: ops.gelu(x, approximate=True),
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


@keras.saving.register_keras_serializable(package="keras_adaptive")
class TransformerBlock(Quantizable):
    """Transformer block: a mixing layer and a feed-forward layer, each with a residual connection and a LayerNorm.

    Without a mixing layer the block is only the feed-forward layer, and its state is empty.

    The block is pre-norm by default: x += drop(mixer(norm(x))), then x += drop(W₂·drop(relu(W₁·norm(x) + b₁)) + b₂).
    With `normalize_first=False` it is post-norm: x = norm(x + drop(mixer(x))), and likewise for the feed-forward layer.

    The feed-forward kernels and biases start from U(±1/√fan_in).

    Args:
        ffn_dim: Width of the feed-forward layer.
        mixer: The layer that mixes positions, a `Mixer` such as `CausalAttention`. Blocks cannot share a mixer. `None`
            for a feed-forward layer only.
        dropout: Dropout rate on both branches, in training.
        activation_dropout: Dropout rate after the activation of the feed-forward layer, in training.
        activation: "relu", "relu_squared", "gelu" (exact), "gelu_tanh" (the approximation), "tanh" or "linear".
        normalize_first: Whether to apply the LayerNorms before the branches (pre-norm) or after the sums (post-norm).

    Call arguments:
        x, training: As in `Mixer`, and the shapes too.

    Raises:
        ValueError: If the activation is unknown.

    Reference:
        Baevski and Auli, Adaptive Input Representations for Neural Language Modeling, ICLR 2019, section 4.1
        (pre-norm); Vaswani et al., Attention Is All You Need, NIPS 2017, section 3.1 (post-norm).

    Example:

    >>> block = TransformerBlock(64, CausalAttention(num_heads=4), dropout=0.1)
    >>> tuple(block(np.ones((2, 8, 16), "float32")).shape)
    (2, 8, 16)
    """

    def __init__(
        self,
        ffn_dim: int,
        mixer: Mixer | None = None,
        *,
        dropout: float = 0.0,
        activation_dropout: float = 0.0,
        activation: str = "relu",
        normalize_first: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if activation not in ACTIVATIONS:
            raise ValueError(f"`activation` must be one of {list(ACTIVATIONS)}. Received: activation={activation!r}.")
        self.ffn_dim = ffn_dim
        self.dropout = dropout
        self.activation_dropout = activation_dropout
        self.activation = activation
        self.normalize_first = normalize_first
        policy = {"dtype": self.dtype_policy}
        # Files hold the weights of any mixing layer under the name `attention`.
        self.attention_norm = None
        if mixer is not None:
            self.attention_norm = LayerNormalization(epsilon=NORM_EPSILON, **policy)
        self.attention = mixer
        self.ffn_norm = LayerNormalization(epsilon=NORM_EPSILON, **policy)
        self._drop = SeededDropout(dropout, **policy)
        self._drop_activation = SeededDropout(activation_dropout, **policy)

    def build(self, input_shape: Shape) -> None:
        dim = input_shape[-1]
        self.ffn_in = self._dense(self.ffn_dim, dim, activation=ACTIVATIONS[self.activation], name="ffn_in")
        self.ffn_out = self._dense(dim, self.ffn_dim, name="ffn_out")
        for layer in (self.attention_norm, self.attention, self.ffn_norm, self.ffn_in):
            if layer is not None and not layer.built:  # a mixer from a config is already built
                layer.build(input_shape)
        self.ffn_out.build((*input_shape[:-1], self.ffn_dim))
        self.built = True

    def _dense(self, units, fan_in, **kwargs):
        uniform = fan_in_uniform(fan_in)
        return FlatDense(
            units, kernel_initializer=uniform, bias_initializer=uniform.clone(), dtype=self.dtype_policy, **kwargs
        )

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        return self.call_with_keys(x, training)[0]

    def call_with_keys(self, x: Tensor, training: bool | None = False) -> tuple[Tensor, Tensor]:
        """Returns the output of `call` and the input of the feed-forward layers, the keys of a `Memory`."""
        if self.attention is not None:
            mixed = self.attention(self._norm_before(self.attention_norm, x), training=training)
            x = self._add_mixed(x, mixed, training)
        keys = self._norm_before(self.ffn_norm, x)
        return self._feed_forward(x, keys, training), keys

    def initial_state(self, batch_size: int, length: int | None, dim: int) -> Any:
        """Returns the mixer's state before the first token, `()` without a mixer."""
        return () if self.attention is None else self.attention.initial_state(batch_size, length, dim)

    def step(self, x: Tensor, state: Any, position: int | Tensor, training: bool | None = False) -> tuple[Tensor, Any]:
        """Returns `(y, state)` for the next tokens, as `Mixer.step` does."""
        y, _, state = self.step_with_keys(x, state, position, training)
        return y, state

    def step_with_keys(
        self, x: Tensor, state: Any, position: int | Tensor, training: bool | None = False
    ) -> tuple[Tensor, Tensor, Any]:
        """Returns `(y, keys, state)` for the next tokens, with the keys of `call_with_keys`."""
        if self.attention is not None:
            mixed, state = self.attention.step(self._norm_before(self.attention_norm, x), state, position, training)
            x = self._add_mixed(x, mixed, training)
        keys = self._norm_before(self.ffn_norm, x)
        return self._feed_forward(x, keys, training), keys, state

    def _add_mixed(self, x, mixed, training):
        return self._norm_after(self.attention_norm, x + in_training(self._drop, mixed, training))

    def _feed_forward(self, x, normed, training):
        inner = self.ffn_in(normed)  # (batch, length, ffn_dim)
        branch = self.ffn_out(in_training(self._drop_activation, inner, training))
        return self._norm_after(self.ffn_norm, x + in_training(self._drop, branch, training))

    def _norm_before(self, norm, x):
        return norm(x) if self.normalize_first else x

    def _norm_after(self, norm, x):
        return x if self.normalize_first else norm(x)

    def activations_per_token(self, length: int, dim: int) -> int:
        """Counts three vectors and a mask for each branch, two feed-forward rows, and the mixer's activations."""
        branches = 1 if self.attention is None else 2
        vectors = branches * (3 + (self.dropout > 0)) * dim
        mixer = 0 if self.attention is None else self.attention.activations_per_token(length, dim)
        return vectors + (2 + (self.activation_dropout > 0)) * self.ffn_dim + mixer

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "ffn_dim": self.ffn_dim,
            "mixer": self.attention and keras.saving.serialize_keras_object(self.attention),
            "dropout": self.dropout,
            "activation_dropout": self.activation_dropout,
            "activation": self.activation,
            "normalize_first": self.normalize_first,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        mixer = config["mixer"] and keras.saving.deserialize_keras_object(config["mixer"])
        return super().from_config({**config, "mixer": mixer})
