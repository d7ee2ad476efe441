"""Conversion of published language models: reads and writes checkpoints of fairseq's `transformer_lm`."""

from keras_adaptive.fairseq.checkpoint import Checkpoint as Checkpoint
from keras_adaptive.fairseq.checkpoint import read_checkpoint as read_checkpoint
from keras_adaptive.fairseq.language_model import build_language_model as build_language_model
from keras_adaptive.fairseq.language_model import load_language_model as load_language_model
from keras_adaptive.fairseq.weights import to_state_dict as to_state_dict
