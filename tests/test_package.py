"""What `import keras_adaptive` gives, and what a process is told that does not import it."""

import importlib.metadata
import json
import sys
import types
import zipfile
from pathlib import Path

import keras
import pytest

import keras_adaptive
from keras_adaptive import layers, models
from tests.support import programs
from tests.support.parts import LATER, PARTS
from tests.support.tiny import language_model, saved_and_loaded

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_in_the_namespace(name):
    assert getattr(keras_adaptive, name).__name__ == f"keras_adaptive.{name}"
    assert name in dir(keras_adaptive)


def test_a_name_that_is_not_there_is_said():
    assert keras_adaptive.load is keras_adaptive.text.load
    with pytest.raises(AttributeError, match="has no attribute 'loda'"):
        _ = keras_adaptive.loda


@pytest.mark.processes
def test_importing_the_package_registers_every_class_and_no_more_than_it_must():
    """Keras finds the classes of a file by registration, so what registers them cannot wait for its first use."""
    program = "import keras_adaptive, sys; print(*sys.modules)"
    done = programs.run("-c", program)
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
@pytest.mark.processes
def test_a_file_says_what_to_import(make, tmp_path):
    """Keras' error prints the config of the file."""
    assert saved_and_loaded(make(), tmp_path / "model.keras").count_params() == make().count_params()
    with zipfile.ZipFile(tmp_path / "model.keras") as file:
        assert json.loads(file.read("config.json"))["config"]["requires"].startswith("import keras_adaptive")
    program = "import sys, keras; keras.saving.load_model(sys.argv[1])"
    done = programs.run("-c", program, tmp_path / "model.keras")
    assert done.returncode == 1 and "import keras_adaptive, before the model is loaded" in done.stderr


HIDDEN = "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, *a: None if n in {} else f(n, *a); "


@pytest.mark.parametrize("missing, chosen", [({"tensorflow"}, "jax"), ({"tensorflow", "jax"}, "torch")])
@pytest.mark.processes
def test_an_installed_backend_is_chosen_before_keras_is_imported(tmp_path, missing, chosen, monkeypatch):
    """Keras itself would choose TensorFlow, and end in a traceback of 30 lines where it is not installed."""
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    program = HIDDEN.format(missing) + "import keras_adaptive, keras; print(keras.config.backend())"
    done = programs.run("-c", program, KERAS_HOME=str(tmp_path))
    assert done.stdout == f"{chosen}\n", done.stderr


@pytest.mark.processes
def test_without_a_backend_the_last_line_says_what_to_install(monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    program = HIDDEN.format({"tensorflow", "jax", "torch"}) + "import keras_adaptive"
    done = programs.run("-c", program)
    message = 'ModuleNotFoundError: No backend of Keras is installed: pip install "keras_adaptive[jax]", [torch] or'
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(message)


def test_the_readme_of_a_wheel_has_no_relative_links():
    root = Path(keras_adaptive.__file__).parents[1]
    names = {}
    exec((root / "setup.py").read_text(encoding="utf-8").split("\nsetup(")[0], names)  # without the call of setup
    text = "[a](docs/a.md) ![p](docs/p.png) [b](https://b.org) [c](#c)"
    assert names["absolute"](text, "") == "a  [b](https://b.org) [c](#c)"
    with_address = "[a](https://x.org/y/docs/a.md) ![p](https://x.org/y/docs/p.png) [b](https://b.org) [c](#c)"
    assert names["absolute"](text, "https://x.org/y/") == with_address
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert names["RELATIVE"].search(readme) and not names["RELATIVE"].search(names["absolute"](readme, ""))


def test_programs_say_their_version(capsys, monkeypatch):
    from trainers.__main__ import main

    monkeypatch.setattr(sys, "argv", ["keras-adaptive", "--version"])
    main()
    assert capsys.readouterr().out == f"keras-adaptive {keras_adaptive.__version__}\n"


def test_an_export_without_tensorflow_names_the_extra(monkeypatch):
    from trainers import export

    monkeypatch.setattr(export, "FLAGS", types.SimpleNamespace(format="saved_model"))
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'needs TensorFlow: pip install "keras_adaptive\[tensorflow\]"'):
        export.main()
