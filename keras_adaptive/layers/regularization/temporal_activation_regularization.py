import keras

from keras_adaptive.layers.regularization.activation_regularization import ActivationRegularization


@keras.saving.register_keras_serializable(package="keras_adaptive")
class TemporalActivationRegularization(ActivationRegularization):
    """Adds strength · mean((x_t − x_{t−1})²) to the losses, in training (TAR).

    The differences are those within the input, so that a single time step adds nothing.

    Args:
        strength: Factor of the mean, not negative; 0 adds nothing.

    Input and output shape:
        (batch, length, dim).

    Raises:
        ValueError: If `strength` is negative.

    Reference:
        Merity, McCann & Socher, Revisiting Activation Regularization for Language RNNs (2017).

    Example:

    >>> layer = TemporalActivationRegularization(1.0)
    >>> y = layer(np.array([[[1.0], [3.0], [3.0]]], "float32"), training=True)
    >>> [float(loss) for loss in layer.losses]
    [2.0]
    """

    def penalized(self, x):
        return x[:, 1:] - x[:, :-1]
