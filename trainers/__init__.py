"""Command-line programs: prepare, convert, train, evaluate, score, generate, export, analyze, plot and others."""

import importlib.util
import json
import os
import sys
from pathlib import Path

BACKENDS = ("tensorflow", "jax", "torch")  # in the order of Keras


def installed_backend():
    """Returns the backend to run on: the choice of Keras if it is installed, otherwise the first installed one.

    Keras reads the environment variable KERAS_BACKEND, or else the file keras.json in its folder. Keras writes this
    file itself, and then it names tensorflow.

    Returns:
        The name of the backend, or None if no backend is installed.
    """
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"]
    try:
        folder = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
        configured = json.loads(Path(folder, "keras.json").read_text(encoding="utf-8")).get("backend")
    except (OSError, ValueError):
        configured = None
    installed = [backend for backend in BACKENDS if importlib.util.find_spec(backend)]
    return configured if configured in installed else next(iter(installed), None)


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # hides TensorFlow's notes about the processor
# On a CPU without AVX-512 these kernels of TensorFlow are off by default, and a training step takes 1.7 times as long.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
if "keras" not in sys.modules:
    if (_backend := installed_backend()) is None:
        sys.exit('No backend of Keras is installed: pip install "keras_adaptive[jax]", [torch] or [tensorflow].')
    os.environ["KERAS_BACKEND"] = _backend
