import keras
from keras import ops


class Body(keras.layers.Layer):
    """Base class of bodies: causal layers from word vectors to hidden states.

    A body computes one function in two ways: `call` takes a whole sequence, `step` takes the next tokens of a sequence
    and a state that summarizes all tokens before them. Generation, evaluation with context and truncated
    back-propagation use `step`.

    Subclasses implement `initial_state` and `step`. The default `call` is the step from the initial state; a body that
    has a faster parallel form overrides `call` too. A subclass sets `output_dim` where it differs from the dimension
    of the input.

    `step` runs outside of `__call__`, where Keras does not cast a layer's own weights to the compute dtype: apply the
    weights through sub-layers, or cast them.

    Attributes:
        max_length: The number of tokens in the longest sequence, `None` for any.
        output_dim: Dimension of the hidden states, `None` for the dimension of the input.

    Call arguments:
        x: Vectors (batch, length, input_dim).
        training: Whether dropout is drawn.

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

    max_length = None
    output_dim = None

    def initial_state(self, batch_size, length=None):
        """Returns the state before the first token.

        Args:
            batch_size: Number of rows.
            length: The number of tokens that all steps take together; only some bodies need it.

        Returns:
            Nested tensors whose first axis is the batch.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `initial_state`.")

    def step(self, x, state, training=False):
        """Computes the outputs of the next tokens.

        Args:
            x: Vectors (batch, steps, input_dim) of the tokens that follow `state`.
            state: The state after the tokens before them. It is not changed, so it can be used twice.
            training: Whether dropout is drawn.

        Returns:
            `(y, state)`: the hidden states (batch, steps, output_dim), and the state after these tokens.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `step`.")

    def call(self, x, training=None):
        state = self.initial_state(ops.shape(x)[0], ops.shape(x)[1])
        return self.step(x, state, training=training)[0]

    def activations_per_token(self, length):
        """Returns the number of values that training keeps per token for the backward pass.

        The estimate of a run's memory uses it. The default is 0: the body then counts nothing.

        Args:
            length: Tokens of a sequence.
        """
        return 0

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.output_dim or input_shape[-1])
