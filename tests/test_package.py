"""What `import keras_adaptive` gives, and what a process is told that does not import it."""

import importlib.metadata
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import keras
import pytest

import keras_adaptive
from keras_adaptive import layers, models
from tests.support.parts import LATER, PARTS
from tests.support.tiny import language_model


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_in_the_namespace(name):
    assert getattr(keras_adaptive, name).__name__ == f"keras_adaptive.{name}"
    assert name in dir(keras_adaptive)


def test_a_name_that_is_not_there_is_said():
    assert keras_adaptive.load is keras_adaptive.text.load
    with pytest.raises(AttributeError, match="has no attribute 'loda'"):
        _ = keras_adaptive.loda


def test_importing_the_package_registers_every_class_and_no_more_than_it_must():
    """Keras finds the classes of a file by registration, so what registers them cannot wait for its first use."""
    program = "import keras_adaptive, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    imported, root = set(done.stdout.split()), Path(keras_adaptive.__file__).parent
    for path in root.rglob("*.py"):
        if "register_keras_serializable(" in path.read_text(encoding="utf-8") and path.parent.name != "hub":
            assert ".".join(path.relative_to(root.parent).with_suffix("").parts) in imported
    assert not imported & {f"keras_adaptive.{name}" for name in LATER}


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
