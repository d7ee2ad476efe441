"""Optimizers and learning rate schedules of published language models."""

from keras_adaptive.optimizers.averaged_sgd import AveragedSGD as AveragedSGD
from keras_adaptive.optimizers.cosine_restarts import CosineRestarts as CosineRestarts
from keras_adaptive.optimizers.l2_adam import L2Adam as L2Adam
from keras_adaptive.optimizers.lazy_adam import LazyAdam as LazyAdam
from keras_adaptive.optimizers.nag import NAG as NAG
