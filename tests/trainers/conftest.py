"""What the tests of several programs share."""

import keras
import pytest

from tests.support.programs import call
from tests.support.quickstart import SHRUNK
from tests.support.served import write_runs
from tests.support.text import prepared, write_zipf
from trainers import train
from trainers.experiments.run_folder import RunFolder


@pytest.fixture(scope="module")
def models_read_once():
    """Programs that read the same file get the same model, and with it the functions that are compiled already."""
    load, models = RunFolder.model, {}

    def model(self, name="best"):
        file = self.model_file(name)
        key = file, file.stat().st_mtime_ns
        if key not in models:
            models[key] = load(self, name)
        return models[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunFolder, "model", model)
        yield


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """The folder of a corpus of 80 made-up words at most."""
    return prepared(write_zipf(tmp_path_factory.mktemp("text"), words=80)).data_dir


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory):
    """The folder of a finished run of the quick start."""
    keras.utils.set_random_seed(1)
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    call(train, *SHRUNK, "--tensorboard", f"--data_dir={corpus}", f"--run_dir={run_dir}")
    return run_dir


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Paths of small runs of every unit, by name."""
    return write_runs(tmp_path_factory.mktemp("runs"))
