from typing import Any

import keras
from keras import ops

from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.ops.sinusoids import sinusoids
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class SinusoidalPositions(Quantizable):
    """Sinusoidal position vectors P(p) = [sin(p·w), cos(p·w)], which are added to the input.

    The frequencies are w_k = exp(−k · ln 10000 / (d/2 − 1)) for k = 0 … d/2 − 1. The layer has no weights and does not
    limit the length.

    Args:
        first_position: Position of the first token; 2 in the published models.

    Attributes:
        max_length: `None`, since the length is not limited.

    Call arguments:
        x: Vectors (batch, length, dim) with an even dim of at least 4. The output has the same shape.
        start: Number of tokens before `x`, int or int tensor.

    Raises:
        ValueError: If the dimension is odd or below 4.

    Reference:
        Vaswani et al., Attention Is All You Need, NIPS 2017, section 3.5, in the arrangement of the published models of
        Baevski and Auli, Adaptive Input Representations for Neural Language Modeling, ICLR 2019.

    Example:

    >>> tuple(SinusoidalPositions()(np.zeros((1, 3, 8), "float32")).shape)
    (1, 3, 8)
    """

    max_length: int | None = None

    def __init__(self, first_position: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.first_position = first_position

    def build(self, input_shape: Shape) -> None:
        dim = input_shape[-1]
        if dim % 2 or dim < 4:
            raise ValueError(f"Sinusoidal positions need an even dimension of at least 4. Received: dim={dim}.")
        self.built = True

    def call(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        places = ops.arange(ops.shape(x)[1]) + start + self.first_position
        return x + ops.cast(sinusoids(places, x.shape[-1], x.shape[-1] // 2 - 1), x.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "first_position": self.first_position}
