from typing import Any

import keras
from keras import ops

from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout
from keras_adaptive.layers.regularization.seeds import UpdateSeedGenerator
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class EmbeddingDropout(SeededDropout):
    """Drops whole words, in training: all occurrences of a dropped word in a batch get a zero vector.

    The layer draws once per word and forward pass, and all micro-batches of an update see the same words. Kept vectors
    are scaled by 1/(1 − rate). The effect equals dropping rows of the embedding's table, without a copy of the table.
    An output that is tied to the table sees all words.

    Args:
        rate: Probability that a word is dropped, in training.
        vocabulary_size: Number of words.
        seed: Integer, optional.

    Call arguments:
        vectors: (…, dim), the word vectors.
        ids: (…) ids of the words, from 0 to `vocabulary_size` − 1.

    Output shape:
        Same as `vectors`.

    Raises:
        ValueError: If `rate` is not from 0 to 1.

    Reference:
        Gal and Ghahramani, A Theoretically Grounded Application of Dropout in Recurrent Neural Networks, NIPS 2016;
        Merity et al., Regularizing and Optimizing LSTM Language Models, ICLR 2018, section 4.3.

    Example:

    >>> ids = np.array([[4, 5, 4]])
    >>> dropped = EmbeddingDropout(0.5, vocabulary_size=10, seed=1)(np.ones((1, 3, 2)), ids, training=True)
    >>> bool(keras.ops.all(dropped[0, 0] == dropped[0, 2]))
    True
    """

    seed_generator_class = UpdateSeedGenerator

    def __init__(self, rate: float, vocabulary_size: int, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(rate, seed, **kwargs)
        self.vocabulary_size = vocabulary_size

    def call(self, vectors: Tensor, ids: Tensor, training: bool | None = False) -> Tensor:
        if not training or self.rate == 0:
            return vectors
        factors = super().call(ops.ones((self.vocabulary_size,), "float32"), training=True)
        factors = ops.expand_dims(ops.take(factors, ids, axis=0), -1)  # (…, 1)
        return ops.cast(ops.multiply(vectors, factors), vectors.dtype)

    def compute_output_shape(self, vectors_shape: Shape, ids_shape: Shape | None = None) -> Shape:
        return vectors_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "vocabulary_size": self.vocabulary_size}
