"""Export of language models as SavedModels that take text and need TensorFlow alone."""

from keras_adaptive.export.saved_model import export_saved_model as export_saved_model
