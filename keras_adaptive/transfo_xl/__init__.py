"""Conversion of Transformer-XL in the form of Hugging Face, such as `transfo-xl-wt103`."""

from keras_adaptive.transfo_xl.language_model import is_checkpoint as is_checkpoint
from keras_adaptive.transfo_xl.language_model import load_language_model as load_language_model
