import keras

from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout
from keras_adaptive.layers.regularization.seeds import UpdateSeedGenerator


@keras.saving.register_keras_serializable(package="keras_adaptive")
class WeightDrop(SeededDropout):
    """DropConnect: drops single weights of a matrix, in training.

    A layer calls it on the matrix once per forward pass. All rows and time steps of a batch see the same mask, and so
    do all micro-batches of an update. Kept weights are scaled by 1/(1 − rate), and gradients reach them through the
    mask. In evaluation the matrix does not change.

    Args:
        rate: Probability that a weight is dropped, in training.
        seed: Integer, optional.

    Input shape:
        Any.

    Output shape:
        Same as the input.

    Reference:
        Wan et al., Regularization of Neural Networks using DropConnect, ICML 2013; Merity et al., Regularizing and
        Optimizing LSTM Language Models, ICLR 2018.

    Example:

    >>> matrix = WeightDrop(0.5, seed=1)(np.ones((30, 20), "float32"), training=True)  # zeros and twos
    """

    seed_generator_class = UpdateSeedGenerator
