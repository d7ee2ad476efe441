from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.checks import check_number_of_layers, check_positive
from keras_adaptive.layers.bodies.body import Body
from keras_adaptive.layers.bodies.context_concatenation import ContextConcatenation
from keras_adaptive.layers.bodies.transformer_block import TransformerBlock
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout, in_training
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class NPLMDecoder(Body):
    """Body of a modern neural probabilistic language model: a concatenated context, then feed-forward layers.

    The word vectors are scaled by √dim, and dropout is applied to them. The first layer is a `ContextConcatenation`.
    Each further layer is a post-norm feed-forward layer that adds the sum of the first layer's global blocks:
    x = norm(x + drop(ffn(x))) + global sum. There is no attention and no position encoding. The size of the state does
    not depend on the length of the text, so that streams can carry it.

    Args:
        num_layers: Number of layers, including the concatenation.
        ffn_dim: Width of the feed-forward layers.
        num_local: Number of tokens in the concatenation; the first one is the current token.
        num_global: Number of global blocks in the concatenation.
        global_window: Number of tokens that a global block sees; required if there are global blocks.
        aggregate: "kernel" for global blocks of learned weights, or "average" for means of adjacent windows.
        concatenation_dim: Width of the hidden layer over the concatenation, `None` for a single linear layer.
        dropout: Dropout rate on the word vectors and on the residual branch of each layer, in training.

    Call arguments:
        x, training: As in `Body`.

    Raises:
        ValueError: If a number is out of range, or only one of `num_global` and `global_window` is given.

    Reference:
        Sun and Iyyer, Revisiting Simple Neural Probabilistic Language Models, NAACL 2021, section 2.1.

    Example:

    >>> body = NPLMDecoder(3, 64, num_local=4, num_global=2, global_window=8, dropout=0.1)
    >>> x = np.random.normal(size=(2, 6, 16)).astype("float32")
    >>> tuple(body(x).shape)
    (2, 6, 16)
    """

    def __init__(
        self,
        num_layers: int,
        ffn_dim: int,
        *,
        num_local: int = 15,
        num_global: int = 0,
        global_window: int | None = None,
        aggregate: str = "kernel",
        concatenation_dim: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(num_layers=num_layers, ffn_dim=ffn_dim)
        check_number_of_layers(num_layers, "num_layers")
        self.num_layers = num_layers
        self.ffn_dim = ffn_dim
        self.dropout = dropout
        policy = {"dtype": self.dtype_policy}
        self._drop = SeededDropout(dropout, **policy)
        self.concatenation = ContextConcatenation(
            num_local,
            num_global=num_global,
            global_window=global_window,
            aggregate=aggregate,
            hidden_dim=concatenation_dim,
            dropout=dropout,
            name="concatenation",
            **policy,
        )
        self.blocks = [
            TransformerBlock(ffn_dim, dropout=dropout, normalize_first=False, name=f"block_{number}", **policy)
            for number in range(1, num_layers)
        ]

    def build(self, input_shape: Shape) -> None:
        self._dim = input_shape[-1]
        for layer in self._parts():
            layer.build(input_shape)
        self.built = True

    def _parts(self) -> list[Any]:
        return [self.concatenation, *self.blocks]

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        return self._run(x, None, training)[0]

    def initial_state(self, batch_size: int, length: int | None = None) -> Tensor:
        """Returns zeros (batch, tokens, dim) in place of the tokens before the text.

        Raises:
            ValueError: If the body is not built.
        """
        if not self.built:
            raise ValueError(
                "The state of an `NPLMDecoder` holds word vectors, whose dimension is unknown: build the body before "
                "`initial_state`."
            )
        return self.concatenation.initial_state(batch_size, length, self._dim)

    def step(self, x: Tensor, state: Any, training: bool | None = False) -> tuple[Tensor, Any]:
        return self._run(x, state, training)

    def _run(self, x, state, training):
        x = in_training(self._drop, ops.cast(x, self.compute_dtype) * self._dim**0.5, training)
        x, global_sum, state = self.concatenation.mix(x, state, training)
        for block in self.blocks:
            x = block(x, training=training)
            x = x if global_sum is None else x + global_sum
        return x, state

    def activations_per_token(self, length: int) -> int:
        """Returns the sum over the layers, plus the word vectors after dropout."""
        kept = sum(layer.activations_per_token(length, self._dim) for layer in self._parts())
        return kept + self._dim * (self.dropout > 0)

    def get_config(self) -> dict[str, Any]:
        concatenation = self.concatenation
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "ffn_dim": self.ffn_dim,
            "num_local": concatenation.num_local,
            "num_global": concatenation.num_global,
            "global_window": concatenation.global_window,
            "aggregate": concatenation.aggregate,
            "concatenation_dim": concatenation.hidden_dim,
            "dropout": self.dropout,
        }
