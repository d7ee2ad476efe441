"""Tensor functions without weights, from which the layers are built."""

from keras_adaptive.ops.context.product import context_product as context_product
from keras_adaptive.ops.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from keras_adaptive.ops.linear_cross_entropy import linear_nll as linear_nll
from keras_adaptive.ops.recurrence import forget_mult as forget_mult
from keras_adaptive.ops.recurrence import lstm as lstm
from keras_adaptive.ops.sampled_losses import SampledValues as SampledValues
from keras_adaptive.ops.sampled_losses import noise_contrastive_loss as noise_contrastive_loss
from keras_adaptive.ops.sampled_losses import sampled_binary_cross_entropy as sampled_binary_cross_entropy
from keras_adaptive.ops.sampled_losses import sampled_cross_entropy as sampled_cross_entropy
