from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.checks import check_positive
from keras_adaptive.metrics.recommended import checked_lists
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class Coverage(keras.metrics.Metric):
    """Computes the share of all items that are recommended to anybody.

    Args:
        k: Number of recommended items per list; `update_state` ignores the others.
        items: Number of items of the catalogue.
        name: Name of the metric, by default `coverage_at_k` with the number k.
        dtype: Data type of the result; float32 by default.

    Reference:
        Ge, Delgado-Battenfeld and Jannach, Beyond Accuracy: Evaluating Recommender Systems by Coverage and Serendipity,
        RECSYS 2010 (catalog coverage).

    Example:

    >>> metric = Coverage(k=2, items=8)
    >>> metric.update_state([[5, 1, 7], [1, 0, 7]])  # such as the ids of `softmax.top_k(hidden, 3)`
    >>> float(metric.result())  # 0, 1 and 5 of 8 items
    0.375
    """

    def __init__(self, k: int, items: int, name: str | None = None, dtype: str | None = None) -> None:
        check_positive(k=k, items=items)
        super().__init__(name=name or f"coverage_at_{k}", dtype=dtype)
        self.k = k
        self.items = items
        self.recommended = self.add_variable((items + 1,), "zeros", name="recommended")  # the last one is for no item

    def update_state(self, ids: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds lists of recommended items.

        Args:
            ids: (…, at least k) ids, the best item first. An id that is no item, such as −1, is ignored.
            sample_weight: (…) weights; lists of weight 0 are ignored. Optional.

        Raises:
            ValueError: If the lists have fewer than k ids, or weights have another shape.
        """
        ids, sample_weight = checked_lists(ids, self.k, self.items, sample_weight)
        counted = (ids >= 0) & (sample_weight[:, None] != 0)
        places = ops.reshape(ops.where(counted, ids, self.items), (-1, 1))
        ones = ops.ones(ops.shape(places)[0], self.recommended.dtype)
        self.recommended.assign(ops.scatter_update(self.recommended.value, places, ones))

    def result(self) -> Tensor:
        """Computes the share of the items that have been recommended, a scalar tensor."""
        return ops.mean(ops.cast(self.recommended[: self.items] > 0, "float32"))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "k": self.k, "items": self.items}
