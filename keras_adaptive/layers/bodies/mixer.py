import keras
from keras import ops


class Mixer(keras.layers.Layer):
    """Base class of mixing layers, through which the positions of a `TransformerBlock` see one another.

    Subclasses implement `initial_state` and `step`, as a body does, and keep the shape of their input. The default
    `call` is the step from the initial state; a mixer that has a faster parallel form overrides `call` too.

    `step` runs outside of `__call__`, where Keras does not cast a layer's own weights to the compute dtype: apply the
    weights through sub-layers, or cast them.

    Call arguments:
        x: Vectors (batch, length, dim).
        training: Whether dropout is drawn.

    Input and output shape:
        (batch, length, dim). Output i depends on inputs 0 to i of its own row only.

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

    def initial_state(self, batch_size, length, dim):
        """Returns the state before the first token.

        Args:
            batch_size: Number of rows.
            length: The number of tokens that all steps take together, `None` when it is not known.
            dim: Dimension of the vectors.

        Returns:
            Nested tensors whose first axis is the batch.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `initial_state`.")

    def step(self, x, state, position, training=False):
        """Mixes the next tokens with all tokens before them.

        Args:
            x: Vectors (batch, steps, dim) of the tokens that follow `state`.
            state: The state after the tokens before them. It is not changed, so it can be used twice.
            position: The number of tokens before `x`, int or int tensor.
            training: Whether dropout is drawn.

        Returns:
            `(y, state)`: the mixed vectors (batch, steps, dim), and the state after these tokens.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `step`.")

    def call(self, x, training=None):
        state = self.initial_state(ops.shape(x)[0], ops.shape(x)[1], x.shape[-1])
        return self.step(x, state, 0, training=training)[0]

    def activations_per_token(self, length, dim):
        """Returns the number of values that training keeps per token for the backward pass, by default 0.

        Args:
            length: Tokens of a sequence.
            dim: Dimension of the vectors.
        """
        return 0

    def compute_output_shape(self, input_shape):
        return input_shape
