import random

import keras


def seeded_dropout(rate, **kwargs):
    """A `keras.layers.Dropout` with a seed of its own, drawn after `keras.utils.set_random_seed`.

    Without one, torch draws from its global generator and training cannot go on exactly from a saved model. torch adds
    the number of calls to the seed, so the seeds of different layers must lie far apart.
    """
    return keras.layers.Dropout(rate, seed=random.randrange(2**31), **kwargs)
