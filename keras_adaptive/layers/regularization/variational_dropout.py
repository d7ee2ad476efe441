import keras

from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout


@keras.saving.register_keras_serializable(package="keras_adaptive")
class VariationalDropout(SeededDropout):
    """Variational (locked) dropout: one mask per row and channel, the same at every time step.

    Every call draws a new mask. The layer has the seeds of `SeededDropout`.

    Args:
        rate: Probability that a channel of a row is dropped, in training.
        seed: Integer, optional.

    Input shape:
        (batch, length, dim).

    Output shape:
        Same as the input.

    Reference:
        Gal and Ghahramani, A Theoretically Grounded Application of Dropout in Recurrent Neural Networks, NIPS 2016;
        Merity et al., Regularizing and Optimizing LSTM Language Models, ICLR 2018.

    Example:

    >>> dropped = VariationalDropout(0.5, seed=1)(np.ones((1, 3, 100), "float32"), training=True)
    >>> first, second, third = keras.ops.convert_to_numpy(dropped)[0]
    >>> bool((first == second).all() and (first == third).all())
    True
    """

    noise_shape = (None, 1, None)
