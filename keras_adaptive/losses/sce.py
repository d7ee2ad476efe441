from typing import Any

import keras

from keras_adaptive.backend.replicas import replica_count
from keras_adaptive.losses.sampled import SampledLoss
from keras_adaptive.ops.bucketed_cross_entropy import BucketSizes, bucketed_cross_entropy
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class SCE(SampledLoss):
    """Scalable cross-entropy (SCE), which compares a target with the classes that are the most probable for its row.

    Random sums of the hidden states of an update are the directions of buckets (the paper's *Mix*). A bucket holds the
    hidden states and the classes with the largest products with its direction. Each row has the cross-entropy of its
    target and the other classes of its bucket, the largest one if it is in several buckets. Rows that are in no bucket
    do not count; the mean over the others stands for all.

    An update computes the products of the directions with all classes, without a gradient, and the logits within the
    buckets, `num_buckets` · `bucket_rows` · `bucket_classes` numbers. Micro-batches and several replicas are errors,
    because buckets mix the rows of an update.

    Args:
        num_buckets: Number of buckets.
        bucket_rows: Number of hidden states per bucket.
        bucket_classes: Number of classes per bucket, at most the number of classes.
        seed: Integer, the seed of the random sums. Optional.

    Raises:
        ValueError: If a size is below 1, or there are fewer classes than `bucket_classes`. In training, if there are
            micro-batches or several replicas.

    Reference:
        Mezentsev et al., Scalable Cross-Entropy Loss for Sequential Recommendations with Large Item Catalogs, RecSys
        2024, section 3.

    Example:

    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(), loss=SCE(num_buckets=64, bucket_rows=64, bucket_classes=256))
    """

    needs_whole_batch = True

    def __init__(self, num_buckets: int, bucket_rows: int, bucket_classes: int, *, seed: int | None = None) -> None:
        self.sizes = BucketSizes(num_buckets, bucket_rows, bucket_classes)
        if min(self.sizes) < 1:
            raise ValueError(
                "`num_buckets`, `bucket_rows` and `bucket_classes` must be at least 1. Received: "
                f"num_buckets={num_buckets}, bucket_rows={bucket_rows}, bucket_classes={bucket_classes}."
            )
        super().__init__(num_buckets * bucket_classes, seed=seed)

    def check(self, vocabulary_size: int) -> None:
        if self.sizes.classes > vocabulary_size:
            raise ValueError(
                f"`bucket_classes` must be at most `vocabulary_size`, {vocabulary_size}. "
                f"Received: bucket_classes={self.sizes.classes}."
            )

    def total(self, x: Tensor, targets: Tensor, weights: Tensor, softmax: Any) -> Tensor:
        if replica_count() > 1:
            raise ValueError(
                "SCE must be trained by one replica, since buckets mix the rows of an update: use another loss on "
                f"several devices. Received: {replica_count()} replicas."
            )
        table = softmax.softmax().bands[0].table
        return bucketed_cross_entropy(x, targets, weights, softmax.vectors, table, self.sizes, softmax.seed_generator)

    def get_config(self) -> dict[str, Any]:
        buckets, rows, classes = self.sizes
        return {"num_buckets": buckets, "bucket_rows": rows, "bucket_classes": classes, "seed": self.seed}
