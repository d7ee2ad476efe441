import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name",
    ["batches.block_batches", "batches.context_windows", "batches.sentence_batches", "text.vocabulary", "text.words"],
    ids=str,
)
def test_examples_of_the_docstrings(name):
    results = doctest.testmod(importlib.import_module(f"keras_adaptive.data.{name}"))
    assert results.attempted and not results.failed
