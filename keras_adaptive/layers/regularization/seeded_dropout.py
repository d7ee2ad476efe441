import random

import keras
from keras import ops

from keras_adaptive.backend.replicas import replica_index

STRIDE = 0x61C88647  # between replicas' seeds: far from those that a layer comes to


def seeded_dropout(rate, **kwargs):
    """A `keras.layers.Dropout` with a seed of its own, drawn after `keras.utils.set_random_seed`.

    Without one, torch draws from its global generator and training cannot go on exactly from a saved model. torch adds
    the number of calls to the seed, so the seeds of different layers must lie far apart. Every replica of distributed
    training draws its own masks; the state, and with it a checkpoint, is that of all.
    """
    layer = keras.layers.Dropout(rate, seed=random.randrange(2**31), **kwargs)
    if rate > 0:
        layer.seed_generator.__class__ = _ReplicaSeeds  # a second generator would have a second state
    return layer


def drop_in_training(layer, x, training):
    """Returns `layer(x)` in training and `x` otherwise, which spares each step of a generation Keras' call."""
    return layer(x, training=True) if training else x


class _ReplicaSeeds(keras.random.SeedGenerator):
    def next(self, ordered=True):
        seed, replica = super().next(ordered), replica_index()
        if isinstance(replica, int) and replica == 0:
            return seed
        shift = ops.cast(replica, seed.dtype) * STRIDE  # wraps around
        return seed + ops.stack([shift, ops.zeros_like(shift)])
