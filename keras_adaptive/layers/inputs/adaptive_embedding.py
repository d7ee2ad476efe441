from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.products import matmul
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.ops.bands import band_boundaries, band_dimensions, cutoff_tuple
from keras_adaptive.ops.quantized_matrix import floats, rows_of
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AdaptiveEmbedding(Quantizable, Input):
    """Adaptive input embedding: rarer words have vectors of smaller dimension.

    Ids are ordered by descending frequency and divided into bands (clusters in the paper). Band i has vectors of
    dimension ⌊embedding_dim / factorⁱ⌋ and a projection to `output_dim`; so does band 0. The layer neither scales the
    vectors nor adds positions: the body does both. Tables start from N(0, dim_i^−½), projections from Xavier uniform.

    Args:
        vocabulary_size: Number of ids.
        embedding_dim: Dimension of the first band's vectors.
        cutoffs: First id of every band but the first, strictly increasing; `()` for one band.
        output_dim: Dimension of the output, by default `embedding_dim`.
        factor: Ratio of the dimensions of a band and the next band.

    Attributes:
        tables: One variable (size_i, dim_i) per band.
        projections: One variable (dim_i, output_dim) per band.

    Call arguments:
        ids: As in `Input`.

    Raises:
        ValueError: If `cutoffs` do not increase or leave the vocabulary, or a band would have dimension 0.

    Reference:
        Baevski and Auli, Adaptive Input Representations for Neural Language Modeling, ICLR 2019, section 3.

    Example:

    >>> embedding = AdaptiveEmbedding(10_000, 128, cutoffs=(1_000, 4_000))
    >>> embedding(np.array([[1, 2_000, 9_999]])).shape
    (1, 3, 128)
    """

    matrices = ("tables", "projections")

    def __init__(
        self,
        vocabulary_size: int,
        embedding_dim: int,
        cutoffs: Sequence[int],
        *,
        output_dim: int | None = None,
        factor: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.cutoffs = cutoff_tuple(cutoffs)
        self.output_dim = output_dim or embedding_dim
        self.factor = factor
        self.boundaries = band_boundaries(vocabulary_size, self.cutoffs)
        self.dimensions = band_dimensions(embedding_dim, factor, len(self.boundaries) - 1)
        self.tables: list[Tensor] = []
        self.projections: list[Tensor] = []

    @property
    def row_variables(self) -> Sequence[Tensor]:
        return self.tables if self.quantization_mode is None else []

    def build(self, input_shape: Shape | None = None) -> None:
        if self.built:
            return
        # Tables are gathered before they are cast, so that mixed precision never casts a whole table.
        for band, dim in enumerate(self.dimensions):
            size = self.boundaries[band + 1] - self.boundaries[band]
            normal = keras.initializers.RandomNormal(stddev=dim**-0.5)
            self.tables.append(self.add_matrix((size, dim), normal, f"table_{band}", autocast=False))
        for band, dim in enumerate(self.dimensions):
            self.projections.append(self.add_matrix((dim, self.output_dim), "glorot_uniform", f"projection_{band}"))
        self.built = True

    def call(self, ids: Tensor) -> Tensor:
        # Flat ids make one matrix product, in the backward pass too.
        shape, ids = ops.shape(ids), ops.reshape(ids, [-1])
        parts = []
        for table, low, high in zip(self.tables, self.boundaries, self.boundaries[1:]):
            inside = (ids >= low) & (ids < high)
            vectors = rows_of(table, ops.where(inside, ids - low, 0))  # (rows, dim_i)
            parts.append(ops.cast(ops.where(ops.expand_dims(inside, -1), vectors, 0), self.compute_dtype))
        projections = [ops.cast(floats(projection), self.compute_dtype) for projection in self.projections]
        embedded = matmul(ops.concatenate(parts, axis=-1), ops.concatenate(projections, axis=0))
        return ops.reshape(embedded, (*shape, self.output_dim))

    def get_config(self) -> dict[str, Any]:
        bands = {"vocabulary_size": self.vocabulary_size, "cutoffs": self.cutoffs, "factor": self.factor}
        dimensions = {"embedding_dim": self.embedding_dim, "output_dim": self.output_dim}
        return {**super().get_config(), **bands, **dimensions}
