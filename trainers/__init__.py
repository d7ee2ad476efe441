"""Programs with absl flags: train, evaluate, score, generate and export."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's notes about the processor
