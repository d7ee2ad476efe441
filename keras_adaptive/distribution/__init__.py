"""Training on several devices, by what the engines have for it."""

from keras_adaptive.distribution.strategies import BACKENDS as BACKENDS
from keras_adaptive.distribution.strategies import start as start
from keras_adaptive.distribution.strategy import Strategy as Strategy
