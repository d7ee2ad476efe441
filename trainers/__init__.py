"""Command-line programs: prepare, convert, train, evaluate, score, generate, export, analyze, plot and others."""

import importlib.util
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # hides TensorFlow's notes about the processor
# On a CPU without AVX-512 these kernels of TensorFlow are off by default, and a training step takes 1.7 times as long.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# The file is loaded without its package, which imports Keras: a program may still choose another backend.
_PATH = Path(__file__).parents[1] / "keras_adaptive" / "installed_backend.py"
_SPEC = importlib.util.spec_from_file_location("installed_backend", _PATH)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
installed_backend = _MODULE.installed_backend
try:
    _MODULE.choose_backend()
except ModuleNotFoundError as error:
    sys.exit(str(error))
