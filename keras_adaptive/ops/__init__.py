"""Pure tensor functions: no weights, no layers."""

from keras_adaptive.ops.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from keras_adaptive.ops.linear_cross_entropy import linear_nll as linear_nll
from keras_adaptive.ops.recurrence import forget_mult as forget_mult
from keras_adaptive.ops.recurrence import lstm as lstm
