import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_adaptive")
class LearnedPositions(keras.layers.Layer):
    """Adds a learned vector for each position of a sequence of limited length.

    Row p of the table belongs to position p, so rows below `first_position` are never read; the published models have
    them too. The table starts from N(0, dim^−½).

    Args:
        length: Number of tokens in the longest sequence.
        first_position: Position of the first token.

    Attributes:
        max_length: `length`.
        table: Variable (first_position + length, dim).

    Call arguments:
        x: Vectors (batch, length, dim).
        start: Number of tokens before `x`, int or int tensor.

    Input and output shape:
        (batch, length, dim).

    Raises:
        ValueError: If a sequence is longer than `length`.

    Reference:
        Gehring et al. 2017, section 3.1.

    Example:

    >>> tuple(LearnedPositions(512)(np.zeros((1, 3, 8), "float32")).shape)
    (1, 3, 8)
    """

    def __init__(self, length, first_position=2, **kwargs):
        super().__init__(**kwargs)
        self.length = length
        self.first_position = first_position

    @property
    def max_length(self):
        return self.length

    def build(self, input_shape):
        dim = input_shape[-1]
        normal = keras.initializers.RandomNormal(stddev=dim**-0.5)
        # The table is gathered before it is cast, so that mixed precision never casts the whole table.
        shape = (self.first_position + self.length, dim)
        self.table = self.add_weight(shape=shape, initializer=normal, name="table", autocast=False)
        self.built = True

    def call(self, x, start=0):
        length = ops.shape(x)[1]
        if isinstance(length, int) and isinstance(start, int):
            self.check_length(start + length)
        vectors = ops.take(self.table, ops.arange(length) + start + self.first_position, axis=0)
        return x + ops.cast(vectors, x.dtype)

    def check_length(self, length):
        """Raises a `ValueError` if `length` tokens exceed the learned positions."""
        if length > self.length:
            raise ValueError(
                f"The model has learned {self.length} positions: cut the text into shorter sequences, context "
                f"included. Received: {length} tokens."
            )

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "length": self.length, "first_position": self.first_position}
