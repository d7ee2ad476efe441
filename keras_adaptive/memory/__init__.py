"""Memories of what a model has read, which are mixed with its probabilities at test time."""

from keras_adaptive.memory.adapting import adapting as adapting
from keras_adaptive.memory.continuous_cache import ContinuousCache as ContinuousCache
from keras_adaptive.memory.memory import Memory as Memory
from keras_adaptive.memory.remembering import remembering as remembering
