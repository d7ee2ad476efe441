import keras

from keras_adaptive.metrics.rank_metric import RankMetric
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class MRR(RankMetric):
    """Computes the mean reciprocal rank of the targets.

    Args:
        k: Number of recommended items; a target of a larger rank is worth 0. `None` for all items.
        name: Name of the metric, by default `mrr_at_k` with the number k, or `mrr`.
        dtype: Data type of the sums; float32 by default.

    Reference:
        Voorhees, The TREC-8 Question Answering Track Report, TREC 1999.

    Example:

    >>> metric = MRR()
    >>> metric.update_state([1, 2, 4])  # such as `softmax.rank(hidden, targets)`
    >>> round(float(metric.result()), 4)
    0.5833
    """

    label = "mrr"

    def gain(self, ranks: Tensor) -> Tensor:
        return 1.0 / ranks
