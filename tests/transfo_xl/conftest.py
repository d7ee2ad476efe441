"""The published folder of tests/golden, with words, and how it is written again after a change."""

import json
import shutil

import numpy as np
import pytest

from keras_adaptive.transfo_xl import load_language_model

WORDS = ["<eos>", *(f"word{number}" for number in range(1, 200))]
WORDS[24] = "<unk>"


@pytest.fixture
def folder(golden, tmp_path):
    """A folder of tests/golden with vocab.txt, which may be changed."""
    folder = tmp_path / "published"
    shutil.copytree(golden.folder / "transfo_xl", folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return folder


@pytest.fixture
def configured(folder):
    """`configured(options)` changes config.json and loads the model."""

    def configured(options):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | options))
        return load_language_model(folder)

    return configured


@pytest.fixture
def texts(golden):
    """The tokens of three segments, their targets and −log p of these, with the ids of `Vocabulary`."""
    arrays, _ = golden("transfo_xl")
    ids = np.argsort([0, 24, *sorted({*range(200)} - {0, 24})]) + 2
    names = ("in/ids", "in/targets", "out/nll")
    tokens, targets, nll = (np.concatenate([arrays[f"{name}_{part}"] for part in (1, 2, 3)], axis=1) for name in names)
    return ids[tokens], ids[targets], nll
