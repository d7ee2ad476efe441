"""Metrics that every replica updates with the same global value, so that reading one replica is enough.

By default TensorFlow sums the metrics over replicas.
"""

import keras

from keras_adaptive.metrics.perplexity import Perplexity


class _OneForAllReplicas:
    def add_variable(self, shape, initializer, dtype=None, aggregation=None, name=None):
        return super().add_variable(shape, initializer, dtype, "only_first_replica", name)


class ReplicatedMean(_OneForAllReplicas, keras.metrics.Mean):
    pass


class ReplicatedSum(_OneForAllReplicas, keras.metrics.Sum):
    pass


class ReplicatedPerplexity(_OneForAllReplicas, Perplexity):
    pass
