"""Old names work, and their warnings name the new ones."""

import importlib
import inspect
import re
import types

import pytest

from keras_adaptive import deprecation
from keras_adaptive.deprecation import RENAMED


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
