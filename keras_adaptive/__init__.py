"""Large-vocabulary language models in Keras 3: adaptive inputs, adaptive softmax and their baselines.

Importing the package registers its classes with Keras. It must be imported before `keras.saving.load_model` reads a
model that uses them.
"""

from keras_adaptive import callbacks as callbacks
from keras_adaptive import data as data
from keras_adaptive import distribution as distribution
from keras_adaptive import evaluation as evaluation
from keras_adaptive import export as export
from keras_adaptive import fairseq as fairseq
from keras_adaptive import layers as layers
from keras_adaptive import metrics as metrics
from keras_adaptive import models as models
from keras_adaptive import ops as ops
from keras_adaptive import optimizers as optimizers
from keras_adaptive import text as text
from keras_adaptive.text import load as load

__version__ = "0.2.0"
