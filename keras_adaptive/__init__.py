"""Large-vocabulary language models in Keras 3: adaptive inputs, adaptive softmax and what they are compared with."""

from keras_adaptive import callbacks as callbacks
from keras_adaptive import data as data
from keras_adaptive import distribution as distribution
from keras_adaptive import fairseq as fairseq
from keras_adaptive import layers as layers
from keras_adaptive import metrics as metrics
from keras_adaptive import models as models
from keras_adaptive import ops as ops
from keras_adaptive import optimizers as optimizers
