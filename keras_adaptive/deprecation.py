"""Old names, which work for one version and raise a `DeprecationWarning`. Files with old names load without one."""

import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Named = TypeVar("Named", bound=Callable)

# Old names of functions and classes, of methods, and of arguments, which are in parentheses; and their new names.
RENAMED = {
    "callbacks.Checkpoint": "SaveModels",
    "callbacks.StopOnSignal(largest)": "all_reduce_max",
    "data.TextCodec.join": "detokenize",
    "data.join_characters": "detokenize_characters",
    "data.join_pieces": "detokenize_subwords",
    "distribution.Strategy.largest": "all_reduce_max",
    "distribution.Strategy.part": "local_batch",
    "evaluation.of_words": "sum_by_word",
    "export.GraphText.join": "detokenize",
    "layers.CharCNN.nearest": "neighbors",
    "layers.CharCNN.neighbors(word)": "words",
    "layers.CharLSTMSoftmax.log_total": "log_normalizer",
    "layers.LearnedPositions(length)": "max_length",
    "layers.Output.draw_among": "sample_top_k",
    "layers.Output.draw_tempered": "sample_with_temperature",
    "layers.Output.sample_top_k(most)": "max_k",
    "layers.Output.sample_with": "sample_from_uniform",
    "layers.TransformerBlock(relu_dropout)": "activation_dropout",
    "models.transformer(relu_dropout)": "activation_dropout",
    "models.transformer_lm(relu_dropout)": "activation_dropout",
    "ops.Sampled": "SampledValues",
    "ops.noise_contrastive_loss(sampled)": "sampled_values",
    "ops.sampled_cross_entropy(sampled)": "sampled_values",
}


def old_names(module: str) -> None:
    """Makes a module find its functions and classes by their old names.

    Args:
        module: The `__name__` of the module.
    """

    def get(name):
        old = f"{module.removeprefix('keras_adaptive.')}.{name}"
        if old not in RENAMED:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn(old)
        return getattr(sys.modules[module], RENAMED[old])

    sys.modules[module].__dict__["__getattr__"] = get


def old_methods(cls: Named) -> Named:
    """Adds the old names of its methods to a class."""

    def alias(old):
        def method(self, *args, **kwargs):
            _warn(old)
            return getattr(self, RENAMED[old])(*args, **kwargs)

        return method

    for name, old in _find(rf"\w+\.{cls.__name__}\.(\w+)").items():
        setattr(cls, name, alias(old))
    return cls


def old_arguments(function: Named) -> Named:
    """Makes a function, a method or a constructor accept the old names of its arguments as keywords."""
    renamed = _arguments(function.__qualname__.removesuffix(".__init__"))

    @functools.wraps(function)
    def call(*args, **kwargs):
        for name in renamed.keys() & kwargs.keys():
            old = renamed[name]
            _warn(old)
            if RENAMED[old] in kwargs:
                raise TypeError(f"`{RENAMED[old]}` is given twice, also by its old name `{name}`: leave that out.")
            kwargs[RENAMED[old]] = kwargs.pop(name)
        return function(*args, **kwargs)

    signature = inspect.signature(function)  # Keras reads it, without following the wrapped function
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def renew(cls: type, config: dict[str, Any]) -> dict[str, Any]:
    """Returns the config of a class with the new names of its arguments."""
    renamed = _arguments(cls.__name__)
    return {RENAMED[renamed[name]] if name in renamed else name: value for name, value in config.items()}


def _arguments(function):
    return _find(rf"\w+\.{re.escape(function)}\((\w+)\)")


def _find(pattern):
    """Returns the last part of the old names that match a pattern, and the whole names."""
    return {match[1]: old for old in RENAMED if (match := re.fullmatch(pattern, old))}


def _warn(old):
    message = f"keras_adaptive.{old} was renamed to `{RENAMED[old]}`; the next version will not know the old name."
    warnings.warn(message, DeprecationWarning, stacklevel=3)
