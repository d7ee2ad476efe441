from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_positive
from keras_adaptive.typing import Tensor


class RankMetric(keras.metrics.Mean):
    """Base class of metrics of ranks: weighted means over all targets, never means of batches.

    A subclass implements `gain(ranks)`, what a target at each rank is worth, and has a `label`.

    Args:
        k: Number of recommended items; a target of a larger rank is worth 0. `None` for all items.
        name: Name of the metric, by default `label_at_k` with the number k, or `label`.
        dtype: Data type of the sums; float32 by default.

    Attributes:
        label: What the default name begins with.
    """

    label = "rank_metric"

    def __init__(self, k: int | None = None, name: str | None = None, dtype: str | None = None) -> None:
        if k is not None:
            check_positive(k=k)
        super().__init__(name=name or (self.label if k is None else f"{self.label}_at_{k}"), dtype=dtype)
        self.k = k

    def gain(self, ranks: Tensor) -> Tensor:
        """Returns what a target is worth at each rank: (…) float32, for float32 ranks (…)."""
        raise NotImplementedError(f"`{type(self).__name__}` must implement `gain(ranks)`.")

    def values(self, ranks: Tensor) -> Tensor:
        """Returns the value of every target, whose weighted mean is the metric.

        Args:
            ranks: (…) integers; rank 1 is the best item.

        Returns:
            (…) float32.
        """
        ranks = ops.convert_to_tensor(ranks)
        gains = self.gain(ops.cast(ranks, "float32"))
        return gains if self.k is None else ops.where(ranks <= self.k, gains, 0.0)

    def update_state(self, ranks: Tensor, *weights: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds the ranks of targets.

        Args:
            ranks: Ranks of the targets, as `Output.rank` or `LanguageModel.score` returns them; rank 1 is the best
                item. An integer tensor of any shape.
            *weights: `sample_weight`, by position.
            sample_weight: Weights of the same shape, 0 for padding. Every target has weight 1 by default.

        Raises:
            ValueError: If the shapes differ, as those of the targets and outputs of a model do, or an array has a rank
                below 1.
        """
        sample_weight = weights[0] if weights else sample_weight  # Keras passes targets, outputs and `sample_weight`
        shapes = [value if value is None else tuple(np.shape(value)) for value in (ranks, sample_weight)]
        if shapes[0] is None or shapes[1] not in (None, shapes[0]):
            raise ValueError(
                f"`{type(self).__name__}` takes the rank of every target and weights of the same shape, not the "
                "targets and outputs of a model: pass it to `compile(metrics=...)` of a `LanguageModel` or "
                f"`WordModel`, which computes the ranks. Received: shapes={shapes}."
            )
        if not ops.is_tensor(ranks) and np.size(ranks) and np.min(ranks) < 1:
            raise ValueError(f"`ranks` must be at least 1, the rank of the best item. Received: ranks={np.min(ranks)}.")
        if sample_weight is not None:
            sample_weight = ops.reshape(sample_weight, (-1,))
        super().update_state(ops.reshape(self.values(ranks), (-1,)), sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "k": self.k}
