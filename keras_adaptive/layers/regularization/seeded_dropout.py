import random
from typing import Any

import keras

from keras_adaptive.backend.dropout import dropout
from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.layers.regularization.seeds import ReplicaSeedGenerator
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class SeededDropout(Quantizable):
    """Reproducible dropout, with a seed, a state that files store, and different masks on different replicas.

    The layer scales values as `keras.layers.Dropout` does. That layer draws from torch's global generator unless it is
    given a seed, and draws the same masks on all replicas. torch adds the number of calls to the seed, so the seeds of
    different layers must be far apart. By default they are random, and `keras.utils.set_random_seed` determines them.

    Subclasses share masks among values. `noise_shape` is the shape of a mask, which is broadcast to the shape of the
    input; `None` stands for a size of the input. `seed_generator_class` generates the seeds of the masks.

    Args:
        rate: Probability that a value is dropped, in training.
        seed: Integer, optional.

    Input shape:
        Any.

    Output shape:
        Same as the input.

    Raises:
        ValueError: If `rate` is not from 0 to 1.

    Example:

    >>> layer = SeededDropout(0.5, seed=1)
    >>> kept = layer(np.ones((1, 1_000)), training=True)  # zeros and twos
    """

    noise_shape: Shape | None = None
    seed_generator_class = ReplicaSeedGenerator

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 <= rate <= 1:
            raise ValueError(f"`rate` must be from 0 to 1. Received: rate={rate}.")
        self.rate = rate
        self.seed = random.randrange(2**31) if seed is None else seed
        self.supports_masking = True
        if rate > 0:
            self.seed_generator = self.seed_generator_class(self.seed)
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        if training and self.rate > 0:
            return dropout(inputs, self.rate, self.noise_shape, self.seed_generator)
        return inputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


def in_training(layer, x, training):
    """Returns `layer(x)` in training and `x` otherwise, which saves a Keras call in each step of generation."""
    return layer(x, training=True) if training else x
