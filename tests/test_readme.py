"""The examples that newcomers copy, on every backend; tests/test_documentation.py has the others."""

import os

import keras
import numpy as np
import pytest

from tests.support.pages import run


def check_best(names, shape):
    """Log-probabilities of the best words, which no later word exceeds."""
    best = keras.ops.convert_to_numpy(names["log_probs"])
    assert best.shape == shape and (np.diff(best) <= 0).all()


def test_the_language_model(tmp_path, monkeypatch):
    check_best(run("README.md", 0, tmp_path, monkeypatch), (1, 5))


@pytest.mark.once
def test_the_recommender(tmp_path, monkeypatch):
    check_best(run("README.md", 1, tmp_path, monkeypatch), (3, 10))


def test_the_transformer(tmp_path, monkeypatch):
    names = run("README.md", 2, tmp_path, monkeypatch)
    assert np.isfinite(names["loss"]) and names["perplexity"] == pytest.approx(np.exp(names["loss"]), rel=1e-4)
    assert os.path.exists("model.keras")


def test_the_example_of_sampled_losses(tmp_path, monkeypatch):
    names = run("docs/sampled_losses.md", 0, tmp_path, monkeypatch)
    assert names["perplexity"] == pytest.approx(np.exp(names["loss"]), rel=1e-4)
    check_best(names, (3, 10))
    names = run("docs/sampled_losses.md", 1, tmp_path, monkeypatch, names)
    assert names["model"].word_output is names["output"] and names["output"].built
