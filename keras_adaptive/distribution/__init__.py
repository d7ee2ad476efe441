"""Training on several devices, with the strategies of TensorFlow, JAX and PyTorch."""

from keras_adaptive.distribution.lost_process import lost_process as lost_process
from keras_adaptive.distribution.strategies import BACKENDS as BACKENDS
from keras_adaptive.distribution.strategies import launched_processes as launched_processes
from keras_adaptive.distribution.strategies import start as start
from keras_adaptive.distribution.strategy import Strategy as Strategy
