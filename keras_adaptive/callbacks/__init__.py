"""Callbacks of `fit`: checkpoints, logs, learning rates, and the orderly end of a training."""

from keras_adaptive.callbacks.backup import Backup as Backup
from keras_adaptive.callbacks.non_monotonic_averaging import NonMonotonicAveraging as NonMonotonicAveraging
from keras_adaptive.callbacks.save_models import SaveModels as SaveModels
from keras_adaptive.callbacks.sgdr import SGDR as SGDR
from keras_adaptive.callbacks.stop_on_signal import StopOnSignal as StopOnSignal
from keras_adaptive.callbacks.terminate_on_hang import TerminateOnHang as TerminateOnHang
from keras_adaptive.callbacks.terminate_on_non_finite import TerminateOnNonFinite as TerminateOnNonFinite
from keras_adaptive.callbacks.throughput import Throughput as Throughput
from keras_adaptive.callbacks.train_log import TrainLog as TrainLog
