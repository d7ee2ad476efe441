from typing import Any

from keras import ops

from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.typing import Shape, Tensor


class Mixer(Quantizable):
    """Base class of mixing layers, through which the positions of a `TransformerBlock` see one another.

    Subclasses implement `initial_state` and `step`, as a body does, and keep the shape of their input. The default
    `call` is the step from the initial state; a mixer with a faster parallel form overrides `call` too.

    `step` runs outside of `__call__`, where Keras does not cast a layer's own weights to the compute dtype: apply the
    weights through sub-layers, or cast them.

    Attributes:
        carries: Whether `step` needs no `position`, and its state no `length`: rows may begin at different times.

    Call arguments:
        x: Vectors (batch, length, dim).
        training: Whether to apply dropout.

    Input shape:
        (batch, length, dim).

    Output shape:
        Same as the input. Output i depends on inputs 0 to i of its own row only.

    Example:

    >>> class CumulativeSum(Mixer):
    ...     def initial_state(self, batch_size, length, dim):
    ...         return keras.ops.zeros((batch_size, dim))
    ...
    ...     def step(self, x, state, position, training=False):
    ...         y = state[:, None] + keras.ops.cumsum(x, axis=1)
    ...         return y, y[:, -1]
    >>> block = TransformerBlock(64, CumulativeSum())
    >>> tuple(block(np.ones((1, 3, 16), "float32")).shape)
    (1, 3, 16)
    """

    carries: bool = False

    def initial_state(self, batch_size: int, length: int | None, dim: int) -> Any:
        """Returns the state before the first token.

        Args:
            batch_size: Number of rows.
            length: Total number of tokens of all steps, `None` if it is unknown.
            dim: Dimension of the vectors.

        Returns:
            Nested tensors whose first axis is the batch.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `initial_state`.")

    def step(self, x: Tensor, state: Any, position: int | Tensor, training: bool | None = False) -> tuple[Tensor, Any]:
        """Mixes the next tokens with all tokens before them.

        Args:
            x: Vectors (batch, steps, dim) of the tokens that follow `state`.
            state: The state after the previous tokens. It does not change and can be used again.
            position: Number of tokens before `x`, int or int tensor.
            training: Whether to apply dropout.

        Returns:
            `(y, state)`: the mixed vectors (batch, steps, dim), and the state after these tokens.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `step`.")

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        state = self.initial_state(ops.shape(x)[0], ops.shape(x)[1], x.shape[-1])
        return self.step(x, state, 0, training=training)[0]

    def activations_per_token(self, length: int, dim: int) -> int:
        """Returns the number of activations per token that training keeps for the backward pass, by default 0.

        Args:
            length: Number of tokens of a sequence.
            dim: Dimension of the vectors.
        """
        return 0

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape
