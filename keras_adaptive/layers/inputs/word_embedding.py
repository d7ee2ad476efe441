from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.layers.regularization.embedding_dropout import EmbeddingDropout
from keras_adaptive.ops.quantized_matrix import rows_of
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class WordEmbedding(Quantizable, Input):
    """Plain embedding: all word vectors have the same dimension.

    An `AdaptiveSoftmax` can be tied to it: a plain softmax, or one whose bands are slices of the table. The layer
    neither scales the vectors nor adds positions: the body does both. The table starts from N(0, dim^−½).

    Args:
        vocabulary_size: Number of ids.
        output_dim: Dimension of the vectors.
        embedding_dropout: Probability that a word is dropped from a batch, in training; see `EmbeddingDropout`.

    Attributes:
        tables: A list of one variable (vocabulary_size, output_dim).

    Call arguments:
        ids: As in `Input`.

    Raises:
        ValueError: If a size or dimension is below 1, or the rate is not from 0 to 1.

    Reference:
        Baevski and Auli, Adaptive Input Representations for Neural Language Modeling, ICLR 2019, section 4.1
        (SM, SM-T, BPE, BPE-T and the input of ASM).

    Example:

    >>> WordEmbedding(10_000, 64)(np.array([[1, 2_000, 9_999]])).shape
    (1, 3, 64)
    """

    matrices = ("tables",)

    def __init__(self, vocabulary_size: int, output_dim: int, *, embedding_dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if vocabulary_size < 1 or output_dim < 1:
            raise ValueError(
                "`vocabulary_size` and `output_dim` must be at least 1. "
                f"Received: vocabulary_size={vocabulary_size}, output_dim={output_dim}."
            )
        self.vocabulary_size = vocabulary_size
        self.output_dim = output_dim
        self.embedding_dropout = embedding_dropout
        self.boundaries = (0, vocabulary_size)
        self.tables: list[Tensor] = []
        self._drop = EmbeddingDropout(embedding_dropout, vocabulary_size, dtype=self.dtype_policy)

    @property
    def row_variables(self) -> Sequence[Tensor]:
        return self.tables if self.quantization_mode is None else []

    def build(self, input_shape: Shape | None = None) -> None:
        if self.built:
            return
        normal = keras.initializers.RandomNormal(stddev=self.output_dim**-0.5)
        # The table is gathered before it is cast, so that mixed precision never casts a whole table.
        shape = (self.vocabulary_size, self.output_dim)
        self.tables.append(self.add_matrix(shape, normal, "table_0", autocast=False))
        self.built = True

    def call(self, ids: Tensor, training: bool | None = False) -> Tensor:
        inside = ids >= 0
        ids = ops.where(inside, ids, 0)
        vectors = rows_of(self.tables[0], ids)
        vectors = ops.cast(ops.where(ops.expand_dims(inside, -1), vectors, 0), self.compute_dtype)
        return self._drop(vectors, ids, training=True) if training and self.embedding_dropout else vectors

    def get_config(self) -> dict[str, Any]:
        sizes = {"vocabulary_size": self.vocabulary_size, "output_dim": self.output_dim}
        return {**super().get_config(), **sizes, "embedding_dropout": self.embedding_dropout}
