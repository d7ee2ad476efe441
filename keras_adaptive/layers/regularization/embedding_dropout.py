import keras
from keras import ops

from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout
from keras_adaptive.layers.regularization.seeds import UpdateSeedGenerator


@keras.saving.register_keras_serializable(package="keras_adaptive")
class EmbeddingDropout(SeededDropout):
    """Drops whole words, in training: all occurrences of a dropped word in a batch get a zero vector.

    The layer draws once per word and forward pass, and all micro-batches of an update see the same words. Kept vectors
    are scaled by 1/(1 − rate). This is the same as dropping rows of the embedding's table, without a copy of it. An
    output that is tied to the table sees all words.

    Args:
        rate: Probability that a word is dropped, in training.
        vocabulary_size: Number of words.
        seed: Integer, optional.

    Call arguments:
        vectors: (…, dim), the word vectors.
        ids: (…) ids of the words, from 0 to `vocabulary_size` − 1.

    Output shape:
        That of `vectors`.

    Reference:
        Gal & Ghahramani 2016; section 4.3 of Merity et al., Regularizing and Optimizing LSTM Language Models (2018).

    Example:

    >>> ids = np.array([[4, 5, 4]])
    >>> dropped = EmbeddingDropout(0.5, vocabulary_size=10, seed=1)(np.ones((1, 3, 2)), ids, training=True)
    >>> bool(keras.ops.all(dropped[0, 0] == dropped[0, 2]))
    True
    """

    seed_generator_class = UpdateSeedGenerator

    def __init__(self, rate, vocabulary_size, seed=None, **kwargs):
        super().__init__(rate, seed, **kwargs)
        self.vocabulary_size = vocabulary_size

    def call(self, vectors, ids, training=False):
        if not training or self.rate == 0:
            return vectors
        factors = super().call(ops.ones((self.vocabulary_size,), "float32"), training=True)
        factors = ops.expand_dims(ops.take(factors, ids, axis=0), -1)  # (…, 1)
        return ops.cast(ops.multiply(vectors, factors), vectors.dtype)

    def compute_output_shape(self, vectors_shape, ids_shape=None):
        return vectors_shape

    def get_config(self):
        return {**super().get_config(), "vocabulary_size": self.vocabulary_size}
