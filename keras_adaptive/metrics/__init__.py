"""Perplexity, and mean losses and probabilities by frequency, by position and of mixtures of models."""

from keras_adaptive.metrics.frequency_bins import loss_by_bucket as loss_by_bucket
from keras_adaptive.metrics.frequency_bins import loss_by_frequency as loss_by_frequency
from keras_adaptive.metrics.mixture import mixture_nll as mixture_nll
from keras_adaptive.metrics.mixture import mixture_weights as mixture_weights
from keras_adaptive.metrics.perplexity import Perplexity as Perplexity
from keras_adaptive.metrics.perplexity import perplexity as perplexity
from keras_adaptive.metrics.positions import positions_after as positions_after
from keras_adaptive.metrics.positions import probability_by_length as probability_by_length
from keras_adaptive.metrics.positions import probability_by_position as probability_by_position
