import keras

from keras_adaptive.layers.regularization.activation_regularization import ActivationRegularization
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class TemporalActivationRegularization(ActivationRegularization):
    """Temporal activation regularization (TAR): adds strength · mean((x_t − x_{t−1})²) to the losses, in training.

    Only differences within the input count, so that a single time step adds nothing. The layer returns its input
    (batch, length, dim).

    Args:
        strength: Factor of the mean, at least 0; 0 adds nothing.

    Raises:
        ValueError: If `strength` is negative.

    Reference:
        Merity et al., Revisiting Activation Regularization for Language RNNs, 2017.

    Example:

    >>> layer = TemporalActivationRegularization(1.0)
    >>> y = layer(np.array([[[1.0], [3.0], [3.0]]], "float32"), training=True)
    >>> [float(loss) for loss in layer.losses]
    [2.0]
    """

    def penalized(self, x: Tensor) -> Tensor:
        return x[:, 1:] - x[:, :-1]
