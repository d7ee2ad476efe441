from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_positive
from keras_adaptive.metrics.recommended import checked_lists
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AveragePopularity(keras.metrics.Mean):
    """Computes the mean popularity of the recommended items: a mean over lists of the mean count of their items.

    Args:
        k: Number of recommended items per list; `update_state` ignores the others.
        counts: Popularity of every item, `(items,)`, such as its number of clicks in the training data.
        name: Name of the metric, by default `average_popularity_at_k` with the number k.
        dtype: Data type of the sums; float32 by default.

    Reference:
        Abdollahpouri, Burke and Mobasher, Managing Popularity Bias in Recommender Systems with Personalized Re-ranking,
        FLAIRS 2019 (average recommendation popularity).

    Example:

    >>> metric = AveragePopularity(k=2, counts=[900, 60, 30, 10])
    >>> metric.update_state([[0, 1, 2], [3, 2, 0]])  # such as the ids of `softmax.top_k(hidden, 3)`
    >>> float(metric.result())  # (480 + 20) / 2
    250.0
    """

    def __init__(self, k: int, counts: Sequence[float], name: str | None = None, dtype: str | None = None) -> None:
        check_positive(k=k)
        self.counts = np.asarray(counts)
        if self.counts.ndim != 1 or not self.counts.size:
            raise ValueError(f"`counts` must hold a number for every item. Received: shape={self.counts.shape}.")
        super().__init__(name=name or f"average_popularity_at_{k}", dtype=dtype)
        self.k = k

    def update_state(self, ids: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds lists of recommended items.

        Args:
            ids: (…, at least k) ids, the best item first. An id that is no item, such as −1, is ignored, and so is a
                list without items.
            sample_weight: (…) weights of the lists, by default 1.

        Raises:
            ValueError: If the lists have fewer than k ids, or weights have another shape.
        """
        ids, sample_weight = checked_lists(ids, self.k, len(self.counts), sample_weight)
        counted = ops.cast(ids >= 0, "float32")
        counts = ops.take(ops.convert_to_tensor(self.counts, "float32"), ops.maximum(ids, 0), axis=0)
        items = ops.sum(counted, axis=-1)
        means = ops.sum(counted * counts, axis=-1) / ops.maximum(items, 1.0)
        super().update_state(means, ops.where(items > 0, sample_weight, 0.0))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "k": self.k, "counts": self.counts.tolist()}
