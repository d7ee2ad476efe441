"""What the programs refuse of folders to make and of full disks: tables of attacks, a line each."""

import os

import numpy as np
import pytest

from keras_adaptive.data import Vocabulary
from keras_adaptive.data.codecs.subwords import Subwords
from keras_adaptive.files import complete_or_absent, write_json
from tests.support.programs import ROOT
from tests.support.refusals import refused
from trainers import convert, prepare
from trainers.experiments.word_losses import WordLosses, write_losses
from trainers.plots import draw, plt

pytestmark = pytest.mark.once

NO_FOLDER = {
    "an empty name": "",
    "the working directory": ".",
    "a link to nothing": "link",
    "a link to an empty folder": "empty",
    "a file": "file",
    "in a file": "file/new",
    "deep in a device": "/dev/null/new/data",
}


@pytest.mark.parametrize("kind", NO_FOLDER)
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path, monkeypatch, kind):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    (tmp_path / "empty").symlink_to(tmp_path / "folder")
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path / "folder")
    folder = NO_FOLDER[kind] if NO_FOLDER[kind] in ("", ".") else tmp_path / NO_FOLDER[kind]
    new, empty = "The output folder must not exist or must be empty", "" if folder else "|must not be empty"
    match = f"{new}. Received: .* Pass another.|exists and is not this corpus{empty}"
    refused(prepare, f"--data_dir={folder}", match=match)  # without a source that could be read
    files = f"{ROOT}/tests/golden"
    published = [f"--checkpoint={files}/transformer_lm_fairseq.pt", f"--dictionary={files}/dict.txt"]
    refused(convert, *published, f"--run_dir={folder}", match=new + empty)
    with pytest.raises(ValueError, match=new), complete_or_absent(folder):
        raise AssertionError("The work began.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "folder", "link"]


def test_a_mounted_disk_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    refused(prepare, f"--data_dir={tmp_path}/data", match="Received: .*, a mounted disk")


FULL_DISKS = {
    "losses.npz": lambda path: write_losses(path, "a model", WordLosses(np.zeros(9), np.zeros(9), 0)),
    "picture.png": lambda path: draw(plt.figure, path),
    "merges.txt": Subwords([("a", "b")]).save,
    "vocabulary.txt": Vocabulary.from_counts({"a": 1}).save,
    "result.json": lambda path: write_json(path, {}),
}


@pytest.mark.parametrize("name", FULL_DISKS)
def test_a_full_disk_names_the_file(tmp_path, name):
    for path in (tmp_path / name, tmp_path / f"partial_{name}"):
        path.symlink_to("/dev/full")
    refused(FULL_DISKS[name], tmp_path / name, error=OSError, match=f"No space left on device: .*{tmp_path}/{name}")
