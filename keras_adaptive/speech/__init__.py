"""Rescoring of the hypotheses of speech recognizers, and language models for their search."""

from keras_adaptive.speech.decoders.espnet import espnet_scorer as espnet_scorer
from keras_adaptive.speech.decoders.hypotheses import Hypotheses as Hypotheses
from keras_adaptive.speech.decoders.hypotheses import Hypothesis as Hypothesis
from keras_adaptive.speech.decoders.pyctcdecode import pyctcdecode_lm as pyctcdecode_lm
from keras_adaptive.speech.decoders.torchaudio import torchaudio_lm as torchaudio_lm
from keras_adaptive.speech.nbest import read_costs as read_costs
from keras_adaptive.speech.nbest import read_nbest as read_nbest
from keras_adaptive.speech.nbest import read_references as read_references
from keras_adaptive.speech.rescoring import hypothesis_nll as hypothesis_nll
from keras_adaptive.speech.weights import best_hypotheses as best_hypotheses
from keras_adaptive.speech.weights import tune_weights as tune_weights
from keras_adaptive.speech.weights import word_errors as word_errors
