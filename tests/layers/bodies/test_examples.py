"""The examples in the docstrings of bodies and constructors run."""

import doctest
import importlib
from functools import partial

import keras
import numpy as np
import pytest

from keras_adaptive import layers, models

BODIES = "keras_adaptive.layers.bodies"
MODULES = [
    *(f"{BODIES}.{name}" for name in ("body", "mixer", "causal_attention", "transformer_block", "transformer_decoder")),
    *(f"{BODIES}.{name}" for name in ("learned_positions", "sinusoidal_positions")),
    "keras_adaptive.models.constructors",
]


@pytest.mark.parametrize("name", MODULES, ids=lambda name: name.rpartition(".")[2])
def test_examples_of_the_docstrings(name):
    names = {**vars(layers), **vars(models), "keras": keras, "np": np, "partial": partial}
    results = doctest.testmod(importlib.import_module(name), extraglobs=names)
    assert results.attempted and not results.failed
