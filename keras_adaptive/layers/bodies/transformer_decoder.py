from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_adaptive.backend.checks import check_number_of_layers
from keras_adaptive.layers.bodies.body import Body
from keras_adaptive.layers.bodies.causal_attention import CausalAttention
from keras_adaptive.layers.bodies.transformer_block import NORM_EPSILON, TransformerBlock
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.layer_normalization import LayerNormalization
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout, in_training
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class TransformerDecoder(Body):
    """Body of causal Transformer blocks.

    The word vectors are scaled by √dim and projected without bias if their dimension is not `dim`. Positions are added,
    and the vectors pass through the blocks. The hidden states may be projected to the dimension that the output needs.

    `keras_adaptive.models.transformer` builds the decoder of the paper from its hyper-parameters.

    Args:
        blocks: List of `TransformerBlock`s, whose mixing layers may differ, or of other layers with the methods of a
            `Mixer`, such as `ContextConcatenation`.
        dim: Dimension of the vectors in the blocks.
        positions: Layer that adds positions, such as `SinusoidalPositions` or `LearnedPositions`; `None` for none.
        dropout: Dropout rate on the input of the first block, in training.
        output_dim: Dimension of the hidden states, by default `dim`; another dimension adds a projection without bias.
        scale_input: Whether to scale the word vectors by √dim.
        input_norm: Whether to apply a LayerNorm after the positions.
        final_norm: Whether to apply a LayerNorm after the last block.

    Call arguments:
        x, training: As in `Body`.

    Reference:
        Baevski and Auli, Adaptive Input Representations for Neural Language Modeling, ICLR 2019, section 4.1.

    Example:

    >>> blocks = [TransformerBlock(64, CausalAttention(num_heads=4)) for _ in range(2)]
    >>> body = TransformerDecoder(blocks, 32, positions=SinusoidalPositions())
    >>> x = np.random.normal(size=(1, 6, 32)).astype("float32")
    >>> y = body(x)  # (1, 6, 32)
    >>> state = body.initial_state(batch_size=1, length=6)
    >>> first, state = body.step(x[:, :4], state)  # equals y[:, :4]
    >>> tuple(first.shape)
    (1, 4, 32)
    """

    def __init__(
        self,
        blocks: Sequence[keras.layers.Layer],
        dim: int,
        *,
        positions: keras.layers.Layer | None = None,
        dropout: float = 0.0,
        output_dim: int | None = None,
        scale_input: bool = True,
        input_norm: bool = False,
        final_norm: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_number_of_layers(len(blocks), "blocks")
        self.dim = dim
        self.dropout = dropout
        self.output_dim = output_dim or dim
        self.scale_input = scale_input
        policy = {"dtype": self.dtype_policy}
        # Checkpoints hold the weights in the order of these attributes.
        self.positions = positions
        self.input_norm = LayerNormalization(epsilon=NORM_EPSILON, **policy) if input_norm else None
        self.final_norm = LayerNormalization(epsilon=NORM_EPSILON, **policy) if final_norm else None
        self._drop = SeededDropout(dropout, **policy)
        self.blocks = list(blocks)
        mixers = _mixers(self.blocks)
        for mixer in mixers:
            if hasattr(mixer, "borrow"):
                mixer.borrow(mixers[0])
        self.projection, self.output_projection = None, None

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of a sequence, which `positions` limits; `None` for no limit."""
        return None if self.positions is None else self.positions.max_length

    @property
    def extrapolates(self) -> bool:
        """Whether order is known by linear biases alone: the attention of a block has `alibi`, and nothing is added."""
        attention = [mixer for mixer in _mixers(self.blocks) if isinstance(mixer, CausalAttention)]
        return self.positions is None and bool(attention) and all(mixer.alibi for mixer in attention)

    def build(self, input_shape: Shape) -> None:
        shape = (*input_shape[:-1], self.dim)
        self.projection = self._between(input_shape, self.dim, "projection")
        self.output_projection = self._between(shape, self.output_dim, "output_projection")
        for layer in (self.positions, self.input_norm, *self.blocks, self.final_norm):
            if layer is not None and not layer.built:  # blocks and positions from a config are already built
                layer.build(shape)
        self.built = True

    def _between(self, input_shape, dim, name):
        """Returns a linear layer without bias that maps `input_shape` to `dim`, or `None` if it has this dimension."""
        if input_shape[-1] == dim:
            return None
        layer = FlatDense(dim, use_bias=False, name=name, dtype=self.dtype_policy)
        layer.build(input_shape)
        return layer

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        x = self._enter(x, 0, training)
        for block in self.blocks:
            x = block(x, training=training)
        return self._leave(x)

    def call_with_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the hidden states and, as keys, the inputs of the feed-forward layers of the last block."""
        *blocks, last = self.blocks
        if not isinstance(last, TransformerBlock):
            return super().call_with_keys(x)
        x = self._enter(x, 0, training=False)
        for block in blocks:
            x = block(x, training=False)
        x, keys = last.call_with_keys(x)
        return self._leave(x), keys

    def initial_state(self, batch_size: int, length: int | None = None) -> tuple[Tensor, list[Any]]:
        """Returns the position of the next token (batch,) and the initial states of the blocks.

        Args:
            batch_size: Number of rows.
            length: Total number of tokens of all steps. May be `None` if all blocks have a memory of fixed size.

        Raises:
            ValueError: If `length` exceeds `max_length`, or is `None` and needed.
        """
        if length is None and (self.positions or not all(mixer.carries for mixer in _mixers(self.blocks))):
            raise ValueError(
                "`length` must be the number of tokens of all steps. This `TransformerDecoder` counts positions from "
                "the beginning of all rows, which begin at different times in streams: use blocks with a memory, such "
                "as those of `transformer_xl`, or another body. Received: length=None."
            )
        if self.max_length is not None and isinstance(length, int):
            self.positions.check_length(length)
        states = [block.initial_state(batch_size, length, self.dim) for block in self.blocks]
        return ops.zeros((batch_size,), "int32"), states

    def step(self, x: Tensor, state: Any, training: bool | None = False) -> tuple[Tensor, Any]:
        y, _, new_states = self._step_blocks(self.blocks, x, state, training)
        return self._leave(y), (state[0] + ops.shape(x)[1], new_states)

    def step_with_keys(self, x: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Returns `(hidden, keys, state)` of the next tokens, with the keys of `call_with_keys`."""
        *blocks, last = self.blocks
        if not isinstance(last, TransformerBlock):
            return super().step_with_keys(x, state)
        y, position, new_states = self._step_blocks(blocks, x, state, training=False)
        y, keys, last_state = last.step_with_keys(y, state[1][-1], position)
        return self._leave(y), keys, (state[0] + ops.shape(x)[1], [*new_states, last_state])

    def _step_blocks(self, blocks, x, state, training):
        """Returns the output of blocks for the next tokens, the position of the first one, and the blocks' states."""
        positions, states = state
        position, new_states = ops.max(positions, initial=0), []  # the same in all rows, if there are any
        y = self._enter(x, position, training)
        for block, block_state in zip(blocks, states):
            y, block_state = block.step(y, block_state, position, training)
            new_states.append(block_state)
        return y, position, new_states

    def _enter(self, x, position, training):
        x = ops.cast(x, self.compute_dtype)
        x = x * self.dim**0.5 if self.scale_input else x
        x = x if self.projection is None else self.projection(x)
        x = x if self.positions is None else self.positions(x, start=position)
        x = x if self.input_norm is None else self.input_norm(x)
        return in_training(self._drop, x, training)

    def _leave(self, x):
        x = x if self.final_norm is None else self.final_norm(x)
        return x if self.output_projection is None else self.output_projection(x)

    def activations_per_token(self, length: int) -> int:
        """Returns the sum over the blocks."""
        return sum(block.activations_per_token(length, self.dim) for block in self.blocks)

    def get_config(self) -> dict[str, Any]:
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "blocks": [serialize(block) for block in self.blocks],
            "dim": self.dim,
            "positions": None if self.positions is None else serialize(self.positions),
            "dropout": self.dropout,
            "output_dim": self.output_dim,
            "scale_input": self.scale_input,
            "input_norm": self.input_norm is not None,
            "final_norm": self.final_norm is not None,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        layers = {name: keras.saving.deserialize_keras_object(config[name]) for name in ("blocks", "positions")}
        return super().from_config({**config, **layers})


def _mixers(blocks):
    """Returns the mixing layers of blocks, some of which have none or are mixing layers themselves."""
    return [mixer for block in blocks if (mixer := getattr(block, "attention", block)) is not None]
