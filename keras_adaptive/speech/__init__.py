"""Rescoring of the hypotheses of speech recognizers."""

from keras_adaptive.speech.nbest import read_costs as read_costs
from keras_adaptive.speech.nbest import read_nbest as read_nbest
from keras_adaptive.speech.nbest import read_references as read_references
from keras_adaptive.speech.rescoring import hypothesis_nll as hypothesis_nll
from keras_adaptive.speech.weights import best_hypotheses as best_hypotheses
from keras_adaptive.speech.weights import tune_weights as tune_weights
from keras_adaptive.speech.weights import word_errors as word_errors
