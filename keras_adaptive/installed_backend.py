"""Choice of an installed backend, which must precede the first import of Keras. Nothing here imports Keras."""

import importlib.util
import json
import os
import sys
from pathlib import Path

BACKENDS = ("tensorflow", "jax", "torch")  # in the order of Keras
MISSING = 'No backend of Keras is installed: pip install "keras_adaptive[jax]", [torch] or [tensorflow].'


def installed_backend() -> str | None:
    """Returns the backend to run on: the choice of Keras if it is installed, otherwise the first installed one or None.

    Keras reads the environment variable KERAS_BACKEND, or else the file keras.json in its folder. Keras writes this
    file itself, and then it names tensorflow.
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


def choose_backend() -> None:
    """Sets KERAS_BACKEND to an installed backend, which must exist, unless Keras is imported already."""
    if "keras" in sys.modules:
        return
    if (backend := installed_backend()) is None:
        raise ModuleNotFoundError(MISSING)
    os.environ["KERAS_BACKEND"] = backend
