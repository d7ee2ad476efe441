"""What the tests of several programs share."""

import pytest

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
