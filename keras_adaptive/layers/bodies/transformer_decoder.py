import keras
from keras import ops

from keras_adaptive.layers.bodies.learned_positions import LearnedPositions
from keras_adaptive.layers.bodies.sinusoidal_positions import SinusoidalPositions
from keras_adaptive.layers.bodies.transformer_block import NORM_EPSILON, TransformerBlock
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.regularization.seeded_dropout import seeded_dropout


@keras.saving.register_keras_serializable(package="keras_adaptive")
class TransformerDecoder(keras.layers.Layer):
    """A body: word vectors to hidden vectors through causal Transformer blocks.

    The word vectors are scaled by √dim, projected without bias if their dimension differs, and given sinusoidal
    positions; there is no LayerNorm behind the last block. What leaves may be projected to another dimension, that
    of the output's words.

    Baevski & Auli 2019, section 4.1. What later published models do otherwise are the arguments from `activation` on.

    Args:
        num_blocks: number of blocks.
        dim: dimension of the hidden vectors.
        ffn_dim: width of the feed-forward layers.
        num_heads: attention heads; must divide `dim`.
        dropout: rate on the input and on both branches of every block, in training.
        attention_dropout: rate on the attention probabilities.
        relu_dropout: rate behind the ReLU, or the other activation.
        first_position: position of the first token: 2 in the published models. `None` for no positions at all.
        output_dim: dimension of the output, by default `dim`; any other takes a projection without bias.
        activation, normalize_first: as in `TransformerBlock`.
        final_norm: whether there is a LayerNorm behind the last block.
        input_norm: whether there is one behind the positions.
        scale_input: whether the word vectors are scaled by √dim.
        learned_positions: number of positions to learn, the longest sequence; 0 for sinusoidal ones.

    Input shape: (batch, length, input_dim).
    Output shape: (batch, length, output_dim).

    The same function a few tokens at a time: `initial_state(batch_size, length)` makes the state, tensors whose first
    axis is the batch, and `step(x, state)` returns the output for the next tokens and the state behind them.

    Example:

    >>> body = TransformerDecoder(num_blocks=2, dim=32, ffn_dim=64, num_heads=4)
    >>> x = np.random.normal(size=(1, 6, 32)).astype("float32")
    >>> y = body(x)  # (1, 6, 32)
    >>> state = body.initial_state(batch_size=1, length=6)
    >>> first, state = body.step(x[:, :4], state)  # equals y[:, :4]
    """

    def __init__(
        self,
        num_blocks,
        dim,
        ffn_dim,
        num_heads,
        dropout=0.0,
        attention_dropout=0.0,
        relu_dropout=0.0,
        first_position=2,
        output_dim=None,
        activation="relu",
        normalize_first=True,
        final_norm=False,
        input_norm=False,
        scale_input=True,
        learned_positions=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_blocks = num_blocks
        self.dim = dim
        self.ffn_dim = ffn_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.relu_dropout = relu_dropout
        self.first_position = first_position
        self.output_dim = output_dim or dim
        self.activation = activation
        self.normalize_first = normalize_first
        self.scale_input = scale_input
        self.learned_positions = learned_positions
        policy = {"dtype": self.dtype_policy}
        self.positions = self._positions()
        self.input_norm = keras.layers.LayerNormalization(epsilon=NORM_EPSILON, **policy) if input_norm else None
        self.final_norm = keras.layers.LayerNormalization(epsilon=NORM_EPSILON, **policy) if final_norm else None
        self._drop = seeded_dropout(dropout, **policy)
        rates = dropout, attention_dropout, relu_dropout
        self.blocks = [
            TransformerBlock(ffn_dim, num_heads, *rates, activation, normalize_first, **policy)
            for _ in range(num_blocks)
        ]
        self.projection, self.output_projection = None, None

    @property
    def max_length(self):
        """Length of the longest sequence; None for any."""
        return self.learned_positions or None

    def activations_per_token(self, length):
        """Returns the number of values that the blocks keep per token of a sequence for the backward pass."""
        masks = 2 * self.dim * (self.dropout > 0) + self.ffn_dim * (self.relu_dropout > 0)
        rows = self.num_heads * length * (2 + (self.attention_dropout > 0))
        return len(self.blocks) * (10 * self.dim + 2 * self.ffn_dim + rows + masks)

    def build(self, input_shape):
        shape = (*input_shape[:-1], self.dim)
        self.projection = self._between(input_shape, self.dim, "projection")
        self.output_projection = self._between(shape, self.output_dim, "output_projection")
        for layer in (self.positions, self.input_norm, *self.blocks, self.final_norm):
            if layer is not None:
                layer.build(shape)
        self.built = True

    def _positions(self):
        if self.first_position is None:
            return None
        if self.learned_positions:
            return LearnedPositions(self.learned_positions, self.first_position, dtype=self.dtype_policy)
        return SinusoidalPositions(self.first_position, dtype=self.dtype_policy)

    def _between(self, input_shape, dim, name):
        """A linear layer without bias where the dimensions differ."""
        if input_shape[-1] == dim:
            return None
        layer = FlatDense(dim, use_bias=False, name=name, dtype=self.dtype_policy)
        layer.build(input_shape)
        return layer

    def call(self, x, training=None):
        x = self._drop(self._enter(x, 0), training=training)
        for block in self.blocks:
            x = block(x, training=training)
        return self._leave(x)

    def initial_state(self, batch_size, length):
        """The state before the first token, with room for `length` tokens."""
        if isinstance(self.positions, LearnedPositions) and isinstance(length, int):
            self.positions.check_length(length)
        caches = [block.initial_state(batch_size, length, self.dim) for block in self.blocks]
        return ops.zeros((batch_size,), "int32"), caches

    def step(self, x, state):
        """`x` (batch, steps, input_dim), the tokens behind `state`, to `(y, state)`; no dropout."""
        positions, caches = state
        position, after = ops.max(positions, initial=0), []  # the same in all rows, if there are any
        y = self._enter(x, position)
        for block, cache in zip(self.blocks, caches):
            y, cache = block.step(y, cache, position)
            after.append(cache)
        return self._leave(y), (positions + ops.shape(x)[1], after)

    def _enter(self, x, position):
        x = ops.cast(x, self.compute_dtype)
        x = x * self.dim**0.5 if self.scale_input else x
        x = x if self.projection is None else self.projection(x)
        x = x if self.positions is None else self.positions(x, start=position)
        return x if self.input_norm is None else self.input_norm(x)

    def _leave(self, x):
        x = x if self.final_norm is None else self.final_norm(x)
        return x if self.output_projection is None else self.output_projection(x)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.output_dim)

    def get_config(self):
        return {
            **super().get_config(),
            "num_blocks": self.num_blocks,
            "dim": self.dim,
            "ffn_dim": self.ffn_dim,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "relu_dropout": self.relu_dropout,
            "first_position": self.first_position,
            "output_dim": self.output_dim,
            "activation": self.activation,
            "normalize_first": self.normalize_first,
            "final_norm": self.final_norm is not None,
            "input_norm": self.input_norm is not None,
            "scale_input": self.scale_input,
            "learned_positions": self.learned_positions,
        }
