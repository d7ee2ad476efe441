"""Export of language models for ONNX Runtime."""

from keras_adaptive.export.onnx.export_onnx import export_onnx as export_onnx
