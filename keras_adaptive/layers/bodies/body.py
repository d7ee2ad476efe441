from typing import Any

from keras import ops

from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.typing import Shape, Tensor


class Body(Quantizable):
    """Base class of bodies: causal layers that map word vectors to hidden states.

    A body computes one function in two ways. `call` takes a whole sequence; `step` takes the next tokens of a sequence
    and a state that summarizes all tokens before them. Generation, evaluation with context and truncated
    back-propagation use `step`.

    Subclasses implement `initial_state` and `step`. The default `call` is the step from the initial state; a body with
    a faster parallel form overrides `call` too. A subclass sets `output_dim` where it differs from the dimension of the
    input.

    `step` runs outside of `__call__`, where Keras does not cast a layer's own weights to the compute dtype: apply the
    weights through sub-layers, or cast them.

    Attributes:
        max_length: Maximum number of tokens of a sequence, `None` for no limit.
        extrapolates: Whether the body predicts as well at distances that training has not seen. A text is then read in
            windows longer than the rows of training; see `keras_adaptive.models.reading_of`.
        output_dim: Dimension of the hidden states, `None` for the dimension of the input.

    Call arguments:
        x: Vectors (batch, length, input_dim).
        training: Whether to apply dropout.

    Input shape:
        (batch, length, input_dim).

    Output shape:
        (batch, length, output_dim). Output i depends on inputs 0 to i of its own row only.

    Example:

    >>> class RunningSum(Body):
    ...     def __init__(self, dim, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.output_dim = dim
    ...
    ...     def initial_state(self, batch_size, length=None):
    ...         return keras.ops.zeros((batch_size, self.output_dim))
    ...
    ...     def step(self, x, state, training=False):
    ...         y = state[:, None] + keras.ops.cumsum(x, axis=1)
    ...         return y, y[:, -1]
    >>> y = RunningSum(4)(np.ones((1, 3, 4), "float32"))
    >>> keras.ops.convert_to_numpy(y)[0, :, 0]
    array([1., 2., 3.], dtype=float32)
    """

    max_length: int | None = None
    extrapolates: bool = False
    output_dim: int | None = None

    def initial_state(self, batch_size: int, length: int | None = None) -> Any:
        """Returns the state before the first token.

        Args:
            batch_size: Number of rows.
            length: Total number of tokens of all steps. Only some bodies need it.

        Returns:
            Nested tensors whose first axis is the batch.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `initial_state`.")

    def step(self, x: Tensor, state: Any, training: bool | None = False) -> tuple[Tensor, Any]:
        """Computes the outputs of the next tokens.

        Args:
            x: Vectors (batch, steps, input_dim) of the tokens that follow `state`.
            state: The state after the previous tokens. It does not change and can be used again.
            training: Whether to apply dropout.

        Returns:
            `(y, state)`: the hidden states (batch, steps, output_dim), and the state after these tokens.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `step`.")

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        state = self.initial_state(ops.shape(x)[0], ops.shape(x)[1])
        return self.step(x, state, training=training)[0]

    def call_with_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns `(hidden, keys)` for prediction: hidden states, and the vectors by which a `Memory` finds tokens.

        By default the hidden states are the keys.
        """
        hidden = self(x, training=False)
        return hidden, hidden

    def step_with_keys(self, x: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Returns `(hidden, keys, state)` of the next tokens; see `step` and `call_with_keys`."""
        hidden, state = self.step(x, state)
        return hidden, hidden, state

    def activations_per_token(self, length: int) -> int:
        """Returns the number of activations per token that training keeps for the backward pass.

        The estimate of a run's memory uses it. The default, 0, leaves the body out of the estimate.

        Args:
            length: Number of tokens of a sequence.
        """
        return 0

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.output_dim or input_shape[-1])
