"""The checkpoint of tests/golden, and how files of checkpoints are read with its dictionary."""

import pytest

from keras_adaptive import fairseq


@pytest.fixture
def read(golden):
    """The checkpoint of tests/golden as torch reads it, which has 200 options of training."""
    torch = pytest.importorskip("torch")
    return torch.load(golden.folder / "transformer_lm_fairseq.pt", weights_only=True)


@pytest.fixture
def load(golden):
    """`load(path)` loads the model and the vocabulary of a checkpoint."""
    return lambda path: fairseq.load_language_model(path, golden.folder / "dict.txt")
