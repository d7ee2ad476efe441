"""Who may import whom. Read from the sources, so that a rule breaks here before it breaks for somebody."""

import ast
from pathlib import Path

import keras
import pytest

from tests.support import programs

pytestmark = pytest.mark.once


ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "keras_adaptive"

# What each part of keras_adaptive may import of the others, in any line of any of its modules.
GROUND = {"fields", "files", "special_words"}
FOR_ALL = {"typing"}
LEAVES = {"data", "metrics", "optimizers", "callbacks"}
TOP = {"export", "distribution", "memory"}
PUBLISHED = {"fairseq", "transfo_xl"}
FLOORS = {"backend", "ops"}
MAY_IMPORT = {
    "installed_backend": set(),
    **{name: set() for name in GROUND | FOR_ALL},
    "backend": set(),
    "ops": {"backend"},
    "losses": FLOORS,
    "layers": {"losses", "metrics"} | FLOORS | GROUND,
    "models": {"layers", "losses", "metrics"} | FLOORS | GROUND,
    **{name: FLOORS | GROUND for name in LEAVES},
    "callbacks": {"metrics", "optimizers"} | FLOORS | GROUND,
    **{name: {"layers", "models"} | FLOORS | GROUND | LEAVES for name in TOP},
    "export": {"layers", "models", "checkpoints"} | FLOORS | GROUND | LEAVES,
    "evaluation": {"layers", "models", "memory"} | FLOORS | GROUND | LEAVES,
    "checkpoints": GROUND,
    **{name: {"layers", "models", "checkpoints"} | FLOORS | GROUND | LEAVES for name in PUBLISHED},
    "text": {"layers", "models", "evaluation", "export"} | FLOORS | GROUND | LEAVES,
    "speech": {"data", "text", "models", "backend"} | GROUND,
    "hub": {"layers", "models", "export", "text"} | FLOORS | GROUND | LEAVES,
}
# The same inside `layers`, where what lies in none of these folders is for all.
ROLES = {"inputs", "bodies", "outputs", "regularization"}
ROLE_MAY_IMPORT = {
    "inputs": {"regularization"},
    "bodies": {"regularization"},
    "outputs": {"inputs", "regularization"},
    "regularization": set(),
}
HEAVY = {"tensorflow", "tensorflow_text", "jax", "jaxlib", "torch", "keras_hub", "keras_nlp"}
SUBCLASSES = {"hub": {"keras_hub"}}  # whose classes a part extends: nothing imports the part but its user
NEVER = {"absl", "trainers", "scripts", "tests", "configs"}


def modules():
    """The modules of the package, without the files that an export copies: other environments import those."""
    return sorted(path for path in PACKAGE.rglob("*.py") if path.parent.name != "pure_torch" or path.stem == "__init__")


def name_of(path, root=ROOT):
    """keras_adaptive/ops/bands.py -> keras_adaptive.ops.bands; a package's __init__.py -> the package."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(source, name, is_package=False):
    """Yields (absolute module name, line, whether it runs when the module is imported)."""
    tree = ast.parse(source)
    later = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = list(from_names(node, name, is_package))
        else:
            continue
        for imported in names:
            yield imported, node.lineno, node not in later


def from_names(node, name, is_package):
    """`from .a import b` may import the module a.b, so b counts as part of the name."""
    base = node.module or ""
    if node.level:
        package = name.split(".")
        package = package[: len(package) - node.level + is_package]
        base = ".".join([*package, base] if base else package)
    for alias in node.names:
        yield f"{base}.{alias.name}"


def part_of(name):
    """keras_adaptive.layers.outputs.softmax -> layers; None outside the package and for its __init__.py."""
    parts = name.split(".")
    return parts[1] if parts[0] == PACKAGE.name and len(parts) > 1 else None


def role_of(name):
    """keras_adaptive.layers.outputs.softmax -> outputs; None outside the roles of `layers`."""
    parts = name.split(".")
    return parts[2] if part_of(name) == "layers" and len(parts) > 2 and parts[2] in ROLES else None


def violations(source, name, is_package=False):
    """Yields a line for every import of this module that breaks a rule."""
    part = part_of(name)
    for imported, line, at_import in imports_of(source, name, is_package):
        top = imported.split(".")[0]
        other = part_of(imported)
        where = f"{name}:{line} imports {imported}: "
        if top in NEVER:
            yield where + f"{top} belongs to the programs, outside {PACKAGE.name}"
        elif top in HEAVY - SUBCLASSES.get(part, set()) and at_import:
            yield where + f"import {top} inside the function that needs it"
        elif (role := role_of(name)) and (other_role := role_of(imported)) not in (None, role):
            if other_role not in ROLE_MAY_IMPORT[role]:
                allowed = ", ".join(sorted(ROLE_MAY_IMPORT[role])) or "nothing"
                yield where + f"{role} may import {allowed} of the layers"
        elif part is None or other is None or other in {part, *FOR_ALL} or other not in MAY_IMPORT:
            continue
        elif other not in MAY_IMPORT[part]:
            allowed = ", ".join(sorted(MAY_IMPORT[part])) or "nothing"
            yield where + f"{part} may import {allowed} of the package"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_of_module(path):
    name = name_of(path)
    if (part := part_of(name)) is not None:
        assert part in MAY_IMPORT, f"{part} is new: say in MAY_IMPORT what it may import"
    found = violations(path.read_text(encoding="utf-8"), name, path.name == "__init__.py")
    assert list(found) == []


FORBIDDEN = [
    ("keras_adaptive.ops.bands", "from keras_adaptive.layers.positions import Positions"),
    ("keras_adaptive.ops.bands", "from keras_adaptive import layers"),
    ("keras_adaptive.ops.bands", "def later():\n    import keras_adaptive.models"),
    ("keras_adaptive.layers.bodies.attention", "from ...models import language_model"),
    ("keras_adaptive.models.language_model", "import keras_adaptive.data.batching"),
    ("keras_adaptive.data.corpus", "import keras_adaptive.metrics"),
    ("keras_adaptive.optimizers.nag", "from ..callbacks import sgdr"),
    ("keras_adaptive.callbacks.sgdr", "from absl import logging"),
    ("keras_adaptive.export", "def main():\n    from trainers import train"),
    ("keras_adaptive.data.batching", "import tensorflow as tf"),
    ("keras_adaptive.ops.bands", "import jax.numpy as jnp"),
    ("keras_adaptive.ops.bands", "try:\n    from torch import nn\nexcept ImportError:\n    nn = None"),
    ("keras_adaptive", "import keras_hub"),
    ("keras_adaptive.text.loading", "from keras_adaptive import hub"),
    ("keras_adaptive.hub.backbone", "import tensorflow as tf"),
    ("keras_adaptive.backend.compiled", "from keras_adaptive.ops.bands import check_ids"),
    ("keras_adaptive.layers.bodies.attention", "from keras_adaptive.layers.inputs import char_cnn"),
    ("keras_adaptive.layers.inputs.char_cnn", "from keras_adaptive.layers.bodies.attention import Attention"),
    ("keras_adaptive.layers.inputs.char_cnn", "from keras_adaptive.layers.outputs import softmax"),
]
ALLOWED = [
    ("keras_adaptive.layers.outputs.softmax", "from keras_adaptive.ops import bands\nimport keras"),
    ("keras_adaptive.layers.outputs.softmax", "from ..inputs import adaptive_embedding"),
    ("keras_adaptive.callbacks.sgdr", "from keras_adaptive.optimizers.cosine_restarts import CosineRestarts"),
    ("keras_adaptive.ops.bands", "def fast():\n    import torch"),
    ("keras_adaptive.backend.compiled", "from keras_adaptive.typing import Tensor"),
    ("keras_adaptive.fairseq", "from keras_adaptive.models import transformer_lm"),
    ("keras_adaptive", "from keras_adaptive import callbacks, models"),
    ("keras_adaptive.hub.backbone", "import keras_hub"),
]


def test_forbidden_imports_are_found_and_others_pass():
    assert PACKAGE / "__init__.py" in modules()
    for name, source in FORBIDDEN:
        assert len(list(violations(source, name))) == 1, (name, source)
    for name, source in ALLOWED:
        assert list(violations(source, name)) == []


def test_relative_imports_of_a_package_start_in_it():
    names = [imported for imported, _, _ in imports_of("from . import bands", "keras_adaptive.ops", True)]
    assert names == ["keras_adaptive.ops.bands"]


IMPORT_EVERYTHING = """
import importlib, sys
_, unwanted, *names = sys.argv
for name in names:
    importlib.import_module(name)
import keras
print(keras.backend.backend(), *sorted(set(sys.modules) & set(unwanted.split(","))))
"""


@pytest.mark.processes
@pytest.mark.each_backend
def test_every_module_imports_without_what_it_does_not_need():
    backend = keras.backend.backend()
    unwanted = {"tensorflow", "tensorflow_text", "keras_hub", "keras_nlp"} - {backend}
    names = [name for name in map(name_of, modules()) if part_of(name) not in SUBCLASSES]
    done = programs.run("-c", IMPORT_EVERYTHING, ",".join(unwanted), *names, KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [backend]


def test_programs_in_the_wheel_need_nothing_outside_of_it():
    for path in (ROOT / "trainers").rglob("*.py"):
        imported = {name.split(".")[0] for name, *_ in imports_of(path.read_text(encoding="utf-8"), name_of(path))}
        assert not imported & {"scripts", "tests"}, path


def test_tests_share_what_is_in_support_only():
    for path in (ROOT / "tests").rglob("*.py"):
        imported = [name for name, *_ in imports_of(path.read_text(encoding="utf-8"), name_of(path))]
        assert not [name for name in imported if name.startswith("tests.") and ".test_" in name], path
