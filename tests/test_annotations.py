"""Every public function, class and method says the types of its arguments and of its result."""

import inspect

import pytest

from tests.support.parts import PARTS, public

pytestmark = pytest.mark.once


def named_functions(part):
    """Yields (name, function) of what a part names: functions, constructors, methods and properties of the package."""
    for name, value in public(part).items():
        yield from [(one.__qualname__, one) for one in functions(value)] if inspect.isclass(value) else [(name, value)]


def functions(cls):
    """Yields the constructors and public methods of a class and its bases; what overrides Keras has its signature."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith(("keras_adaptive.", "tests."))]
    theirs = {name for base in set(cls.__mro__) - set(ours) for name in vars(base)} - {"__init__", "call"}
    for base in ours:
        for name, value in vars(base).items():
            value = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
            if inspect.isfunction(value) and value.__qualname__.endswith(f"{base.__name__}.{name}"):
                if name == "__init__" or not name.startswith("_") and name not in theirs:
                    yield value


def without_types(function):
    """Returns the names of the arguments without a type, and "return" if the result has none."""
    parameters = list(inspect.signature(function).parameters)
    skipped = parameters[:1] if parameters[:1] in (["self"], ["cls"]) else []
    names = [name for name in parameters if name not in skipped and name not in ("args", "kwargs")]
    expected = names if function.__name__ == "__init__" else [*names, "return"]
    return [name for name in expected if name not in function.__annotations__]


@pytest.mark.parametrize("part", PARTS)
def test_public_names_have_types(part):
    missing = {name: without for name, function in named_functions(part) if (without := without_types(function))}
    assert missing == {}


def test_what_has_no_types_is_found():
    class Example:
        def __init__(self, one: int, two): ...

        def method(self, *args, three=3, **kwargs) -> None: ...

        @property
        def four(self): ...

    found = {function.__name__: without_types(function) for function in functions(Example)}
    assert found == {"__init__": ["two"], "method": ["three"], "four": ["return"]}
