"""Programs with absl flags: prepare, convert, train, evaluate, score, generate, export, analyze and plot."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's notes about the processor
