import math

import keras
from keras import ops

from keras_adaptive.metrics.rank_metric import RankMetric
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class NDCG(RankMetric):
    """Computes the normalized discounted cumulative gain of one target per row: the mean of 1 / log₂(1 + rank).

    Args:
        k: Number of recommended items; a target of a larger rank is worth 0. `None` for all items.
        name: Name of the metric, by default `ndcg_at_k` with the number k, or `ndcg`.
        dtype: Data type of the sums; float32 by default.

    Reference:
        Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002, with the discount of
        Krichene and Rendle, On Sampled Metrics for Item Recommendation, KDD 2020.

    Example:

    >>> metric = NDCG(k=10)
    >>> metric.update_state([1, 3, 10, 11])  # such as `softmax.rank(hidden, targets)`
    >>> round(float(metric.result()), 4)  # (1 + 1/2 + 0.289 + 0) / 4
    0.4473
    """

    label = "ndcg"

    def gain(self, ranks: Tensor) -> Tensor:
        return math.log(2) / ops.log1p(ranks)
