import keras
from keras import ops

from keras_adaptive.layers.bodies.transformer_block import TransformerBlock
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.inputs.positions import SinusoidalPositions
from keras_adaptive.layers.seeded_dropout import seeded_dropout


@keras.saving.register_keras_serializable(package="keras_adaptive")
class TransformerDecoder(keras.layers.Layer):
    """A body: word vectors to hidden vectors through causal Transformer blocks.

    The word vectors are scaled by √dim, projected without bias if their dimension differs, and given sinusoidal
    positions; there is no LayerNorm behind the last block. What leaves may be projected to another dimension, that
    of the output's words.

    Baevski & Auli 2019, section 4.1.

    Args:
        num_blocks: number of blocks.
        dim: dimension of the hidden vectors.
        ffn_dim: width of the feed-forward layers.
        num_heads: attention heads; must divide `dim`.
        dropout: rate on the input and on both branches of every block, in training.
        attention_dropout: rate on the attention probabilities.
        relu_dropout: rate behind the ReLU.
        first_position: position of the first token: 2 in the published models.
        output_dim: dimension of the output, by default `dim`; any other takes a projection without bias.

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
        policy = {"dtype": self.dtype_policy}
        self.positions = SinusoidalPositions(first_position, **policy)
        self._drop = seeded_dropout(dropout, **policy)
        self.blocks = [
            TransformerBlock(ffn_dim, num_heads, dropout, attention_dropout, relu_dropout, **policy)
            for _ in range(num_blocks)
        ]
        self.projection, self.output_projection = None, None

    def build(self, input_shape):
        shape = (*input_shape[:-1], self.dim)
        self.projection = self._between(input_shape, self.dim, "projection")
        self.output_projection = self._between(shape, self.output_dim, "output_projection")
        self.positions.build(shape)
        for block in self.blocks:
            block.build(shape)
        self.built = True

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
        caches = [block.initial_state(batch_size, length, self.dim) for block in self.blocks]
        return ops.zeros((batch_size,), "int32"), caches

    def step(self, x, state):
        """`x` (batch, steps, input_dim), the tokens behind `state`, to `(y, state)`; no dropout."""
        positions, caches = state
        position, after = positions[0], []  # the same in all rows
        y = self._enter(x, position)
        for block, cache in zip(self.blocks, caches):
            y, cache = block.step(y, cache, position)
            after.append(cache)
        return self._leave(y), (positions + ops.shape(x)[1], after)

    def _enter(self, x, position):
        x = ops.cast(x, self.compute_dtype) * self.dim**0.5
        return self.positions(x if self.projection is None else self.projection(x), start=position)

    def _leave(self, x):
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
        }
