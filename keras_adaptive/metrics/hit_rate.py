import keras
from keras import ops

from keras_adaptive.metrics.rank_metric import RankMetric
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class HitRate(RankMetric):
    """Computes the share of the targets that are among the k best items.

    With one target per row it is also the recall at k.

    Args:
        k: Number of recommended items.
        name: Name of the metric, by default `hit_rate_at_k` with the number k.
        dtype: Data type of the sums; float32 by default.

    Reference:
        Krichene and Rendle, On Sampled Metrics for Item Recommendation, KDD 2020, on why all items are ranked.

    Example:

    >>> metric = HitRate(k=10)
    >>> metric.update_state([1, 3, 10, 11])  # such as `softmax.rank(hidden, targets)`
    >>> float(metric.result())
    0.75
    """

    label = "hit_rate"

    def __init__(self, k: int, name: str | None = None, dtype: str | None = None) -> None:
        super().__init__(k, name, dtype)

    def gain(self, ranks: Tensor) -> Tensor:
        return ops.ones_like(ranks)
