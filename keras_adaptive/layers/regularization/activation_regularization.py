from typing import Any

import keras
from keras import ops

from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class ActivationRegularization(Quantizable):
    """Activation regularization (AR): adds strength · mean(x²) to the losses, in training.

    The layer returns its input (batch, length, dim). `LanguageModel` trains on the mean loss per target plus the losses
    of its layers.

    Args:
        strength: Factor of the mean, at least 0; 0 adds nothing.

    Raises:
        ValueError: If `strength` is negative.

    Reference:
        Merity et al., Revisiting Activation Regularization for Language RNNs, 2017.

    Example:

    >>> layer = ActivationRegularization(2.0)
    >>> y = layer(3.0 * np.ones((1, 2, 4), "float32"), training=True)
    >>> [float(loss) for loss in layer.losses]
    [18.0]
    """

    def __init__(self, strength: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not strength >= 0:  # or NaN
            raise ValueError(f"`strength` must not be negative. Received: strength={strength}.")
        self.strength = strength
        self.supports_masking = True
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        if training and self.strength > 0:
            values = ops.cast(self.penalized(inputs), "float32")
            count = ops.maximum(ops.cast(ops.size(values), "float32"), 1.0)  # at least 1, if there are no values
            self.add_loss(self.strength * ops.sum(ops.square(values)) / count)
        return inputs

    def penalized(self, x: Tensor) -> Tensor:
        """Returns the values whose squares the loss contains, by default the input."""
        return x

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "strength": self.strength}
