import random

import keras

from keras_adaptive.backend.dropout import dropout
from keras_adaptive.layers.regularization.seeds import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_adaptive")
class SeededDropout(keras.layers.Layer):
    """Dropout that can be reproduced: it has a seed, a state to save, and a mask of its own on each replica.

    The layer scales values as `keras.layers.Dropout` does. That layer draws from torch's global generator unless it is
    given a seed, and draws the same masks on all replicas. torch adds the number of calls to the seed, so the seeds of
    different layers must lie far apart: by default they are drawn at random, and `keras.utils.set_random_seed`
    determines them.

    Subclasses share masks among values: `noise_shape` is the shape of a mask, which is repeated to the shape of the
    input, `None` for the size of the input. `seed_generator_class` makes the seeds of the masks.

    Args:
        rate: Probability that a value is dropped, in training.
        seed: Integer, optional.

    Input and output shape:
        Any.

    Example:

    >>> layer = SeededDropout(0.5, seed=1)
    >>> kept = layer(np.ones((1, 1_000)), training=True)  # zeros and twos
    """

    noise_shape = None
    seed_generator_class = ReplicaSeedGenerator

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate <= 1:
            raise ValueError(f"`rate` must be from 0 to 1. Received: rate={rate}.")
        self.rate = rate
        self.seed = random.randrange(2**31) if seed is None else seed
        self.supports_masking = True
        if rate > 0:
            self.seed_generator = self.seed_generator_class(self.seed)
        self.built = True

    def call(self, inputs, training=False):
        if training and self.rate > 0:
            return dropout(inputs, self.rate, self.noise_shape, self.seed_generator)
        return inputs

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


def drop_in_training(layer, x, training):
    """Returns `layer(x)` in training and `x` otherwise, which saves a call of Keras in each step of a generation."""
    return layer(x, training=True) if training else x
