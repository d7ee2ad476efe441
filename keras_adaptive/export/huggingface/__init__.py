"""Export of language models for the package transformers."""

from keras_adaptive.export.huggingface.export_huggingface import export_huggingface as export_huggingface
