"""What `import keras_adaptive` gives, and what a process is told that does not import it."""

import importlib.metadata
import json
import subprocess
import sys
import zipfile

import pytest

import keras_adaptive
from tests.support.tiny import language_model

PARTS = ["callbacks", "data", "distribution", "evaluation", "export", "fairseq"]
PARTS += ["layers", "metrics", "models", "ops", "optimizers"]


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_in_the_namespace(name):
    assert getattr(keras_adaptive, name).__name__ == f"keras_adaptive.{name}"


def test_the_version_is_that_of_the_distribution():
    assert keras_adaptive.__version__ == importlib.metadata.version("keras_adaptive")


def test_a_file_says_what_to_import(tmp_path):
    """Keras' error prints the config of the file."""
    language_model().save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as file:
        assert json.loads(file.read("config.json"))["config"]["requires"].startswith("import keras_adaptive")
    program = "import sys, keras; keras.saving.load_model(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model.keras")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1 and "import keras_adaptive, before the model is loaded" in done.stderr
