"""Language models: one class, and named constructors."""

from keras_adaptive.models.language_model import LanguageModel as LanguageModel
from keras_adaptive.models.transformer_lm import transformer_lm as transformer_lm
