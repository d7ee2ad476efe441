"""The files of the project, and the public parts of the package."""

import importlib
import inspect
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(path for folder in ("keras_adaptive", "trainers", "scripts") for path in (ROOT / folder).rglob("*.py"))
AT_ONCE = ["layers", "losses", "metrics", "models", "ops", "optimizers"]  # what `import keras_adaptive` imports
# What is imported when it is used.
LATER = ["callbacks", "data", "distribution", "evaluation", "export", "fairseq", "hub", "text", "transfo_xl"]
PARTS = sorted([*AT_ONCE, *LATER])


def public(part):
    """Returns the public functions and classes of a part of the package by name."""
    names = vars(importlib.import_module(f"keras_adaptive.{part}"))
    found = {name: value for name, value in names.items() if inspect.isfunction(value) or inspect.isclass(value)}
    home = f"keras_adaptive.{part}"  # a part that is a file names what it imports, too
    return {name: value for name, value in found.items() if name[0] != "_" and value.__module__.startswith(home)}
