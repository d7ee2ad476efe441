"""Export of models: SavedModels, which need TensorFlow alone, and files for transformers, ONNX Runtime and LiteRT."""

from keras_adaptive.export.graph_subwords import GraphSubwords as GraphSubwords
from keras_adaptive.export.graph_text import GraphText as GraphText
from keras_adaptive.export.graph_words import graph_words as graph_words
from keras_adaptive.export.huggingface import export_huggingface as export_huggingface
from keras_adaptive.export.litert import export_litert as export_litert
from keras_adaptive.export.onnx import export_onnx as export_onnx
from keras_adaptive.export.recommender import export_recommender as export_recommender
from keras_adaptive.export.saved_model import export_saved_model as export_saved_model
