"""Old names work, and their warnings name the new ones."""

import importlib
import inspect
import re
import types
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_adaptive import deprecation
from keras_adaptive.deprecation import RENAMED

pytestmark = pytest.mark.once

FILE = Path(__file__).parent / "models" / "old_names.keras"  # saved before the renames


def split(old):
    """Returns the part, the name in it, and the names of a method and of an argument or None."""
    return re.fullmatch(r"(\w+)\.(\w+)(?:\.(\w+))?(?:\((\w+)\))?", old).groups()


def warns(old):
    return pytest.warns(DeprecationWarning, match=rf"^keras_adaptive\.{re.escape(old)} was renamed to `{RENAMED[old]}`")


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_works(old):
    part, name, method, argument = split(old)
    module, new = importlib.import_module(f"keras_adaptive.{part}"), RENAMED[old]
    if argument:
        function = getattr(module, name) if method is None else getattr(getattr(module, name), method)
        names = inspect.signature(function).parameters
        assert new in names and argument not in names
        with warns(old), pytest.raises(TypeError, match=f"`{new}` is given twice"):
            function(**{argument: 1, new: 1})
    elif method:
        cls = getattr(module, name)
        receiver = types.SimpleNamespace(**{new: lambda *args, **kwargs: (args, kwargs)})
        assert callable(getattr(cls, new))
        with warns(old):
            assert getattr(cls, method)(receiver, 1, k=2) == ((1,), {"k": 2})
    else:
        assert name not in vars(module)
        with warns(old):
            assert getattr(module, name) is vars(module)[new]


def test_a_name_that_never_was_is_an_error():
    for part in {part for part, _, method, argument in map(split, RENAMED) if method is argument is None}:
        with pytest.raises(AttributeError, match=f"module 'keras_adaptive.{part}' has no attribute 'noname'"):
            _ = importlib.import_module(f"keras_adaptive.{part}").noname


def test_arguments(monkeypatch):
    monkeypatch.setitem(RENAMED, "layers.Example(length)", "max_length")

    class Example:
        def __init__(self, max_length, first=0):
            self.given = max_length, first

    Example.__init__.__qualname__ = "Example.__init__"
    Example.__init__ = deprecation.old_arguments(Example.__init__)
    assert Example(3, first=1).given == Example(max_length=3, first=1).given == (3, 1)
    with warns("layers.Example(length)") as caught:
        assert Example(length=3, first=1).given == (3, 1)
    assert caught[0].filename == __file__
    assert deprecation.renew(Example, {"length": 3, "first": 1}) == {"max_length": 3, "first": 1}


def test_a_file_with_old_names_loads_without_a_warning():
    with zipfile.ZipFile(FILE) as file:
        config = file.read("config.json").decode()
    assert '"length": 9' in config and '"relu_dropout": 0.3' in config
    model = keras.saving.load_model(FILE)
    assert model.body.max_length == model.body.positions.max_length == 9
    assert model.body.blocks[0].activation_dropout == 0.3
    assert model.log_probs(np.array([[4, 5, 6, 19]], "int32")).sum() == pytest.approx(-373.2837, abs=1e-3)
    seeds = [variable for variable in model.variables if "seed_generator" in variable.path]
    assert [int(keras.ops.convert_to_numpy(seed)[0]) for seed in seeds] == [1507157250, 913350334]


def test_the_changelog_lists_all_of_them():
    text = (Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+)` \| `(\w+)` \|$", text, re.MULTILINE)
    assert dict(rows) == RENAMED
