from keras_adaptive.callbacks.checkpoint import Checkpoint as Checkpoint
from keras_adaptive.callbacks.sgdr import SGDR as SGDR
from keras_adaptive.callbacks.throughput import Throughput as Throughput
from keras_adaptive.callbacks.train_log import TrainLog as TrainLog
