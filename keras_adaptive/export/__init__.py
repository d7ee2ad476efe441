"""SavedModels of language models: text in, answers out, with TensorFlow alone."""

from keras_adaptive.export.saved_model import export_saved_model as export_saved_model
