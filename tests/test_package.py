"""What `import keras_adaptive` gives, and what a process is told that does not import it."""

import importlib.metadata
import json
import subprocess
import sys
import zipfile

import keras
import pytest

import keras_adaptive
from keras_adaptive import layers, models
from tests.support.tiny import language_model

PARTS = ["callbacks", "data", "distribution", "evaluation", "export", "fairseq"]
PARTS += ["layers", "metrics", "models", "ops", "optimizers", "text"]


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_in_the_namespace(name):
    assert getattr(keras_adaptive, name).__name__ == f"keras_adaptive.{name}"


def test_the_version_is_that_of_the_distribution():
    assert keras_adaptive.__version__ == importlib.metadata.version("keras_adaptive")


def word_model():
    tokens, embedding = keras.Input((None,)), layers.WordEmbedding(20, 8)
    return models.WordModel(tokens, embedding(tokens), word_output=layers.AdaptiveSoftmax(20, (5,), factor=2))


@pytest.mark.parametrize("make", [language_model, word_model])
def test_a_file_says_what_to_import(make, tmp_path):
    """Keras' error prints the config of the file."""
    make().save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").count_params() == make().count_params()
    with zipfile.ZipFile(tmp_path / "model.keras") as file:
        assert json.loads(file.read("config.json"))["config"]["requires"].startswith("import keras_adaptive")
    program = "import sys, keras; keras.saving.load_model(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model.keras")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1 and "import keras_adaptive, before the model is loaded" in done.stderr
