from typing import Any

import keras
from keras import ops

from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class LearnedPositions(Quantizable):
    """Learned position vectors, added to sequences of limited length.

    Row p of the table is the vector of position p. Rows below `first_position` are never read; the published models
    contain them too. The table starts from N(0, dim^−½).

    Args:
        max_length: Maximum number of tokens of a sequence.
        first_position: Position of the first token; 2 in the published models.

    Attributes:
        table: Variable (first_position + max_length, dim).

    Call arguments:
        x: Vectors (batch, length, dim). The output has the same shape.
        start: Number of tokens before `x`, int or int tensor.

    Raises:
        ValueError: If a sequence is longer than `max_length`.

    Reference:
        Gehring et al., Convolutional Sequence to Sequence Learning, ICML 2017, section 3.1.

    Example:

    >>> tuple(LearnedPositions(512)(np.zeros((1, 3, 8), "float32")).shape)
    (1, 3, 8)
    """

    def __init__(self, max_length: int, first_position: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_length = max_length
        self.first_position = first_position

    def build(self, input_shape: Shape) -> None:
        dim = input_shape[-1]
        normal = keras.initializers.RandomNormal(stddev=dim**-0.5)
        # The table is gathered before it is cast, so that mixed precision never casts the whole table.
        shape = (self.first_position + self.max_length, dim)
        self.table = self.add_weight(shape=shape, initializer=normal, name="table", autocast=False)
        self.built = True

    def call(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        length = ops.shape(x)[1]
        if isinstance(length, int) and isinstance(start, int):
            self.check_length(start + length)
        vectors = ops.take(self.table, ops.arange(length) + start + self.first_position, axis=0)
        return x + ops.cast(vectors, x.dtype)

    def check_length(self, length: int) -> None:
        """Raises a `ValueError` if `length` tokens exceed the number of learned positions."""
        if length > self.max_length:
            raise ValueError(
                f"The model has learned {self.max_length} positions: cut the text into shorter sequences, context "
                f"included. Received: {length} tokens."
            )

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_length": self.max_length, "first_position": self.first_position}
