"""Files and folders reach the disk before the rename that makes them visible, and their names after it."""

import os

import pytest

from keras_adaptive.files import complete_or_absent, write_json

pytestmark = pytest.mark.once


@pytest.fixture
def events(tmp_path, monkeypatch):
    """Lists what is flushed and renamed below the temporary folder, in order."""
    fsync, rename, found = os.fsync, os.rename, []

    def name(path):
        return os.path.relpath(os.path.realpath(path), os.path.realpath(tmp_path))

    def flush(descriptor):
        found.append(("flush", name(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def renamed(source, target, **kwargs):
        found.append(("rename", name(source), name(target)))
        rename(source, target, **kwargs)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(os, "rename", renamed)
    return found


def test_a_file_is_flushed_before_and_its_name_after_the_rename(tmp_path, events):
    write_json(tmp_path / "results.json", {})
    partial = "partial_results.json"
    assert events == [("flush", partial), ("rename", partial, "results.json"), ("flush", ".")]


def test_a_folder_is_flushed_with_all_that_it_holds(tmp_path, events):
    with complete_or_absent(tmp_path / "corpus") as new:
        (new / "tokens").mkdir()
        (new / "tokens" / "train.bin").write_bytes(b"1")
        (new / "corpus.json").write_text("{}")
        temporary = new.name
    contents = [temporary, f"{temporary}/tokens", f"{temporary}/tokens/train.bin", f"{temporary}/corpus.json"]
    place = events.index(("rename", temporary, "corpus"))
    assert sorted(events[:place]) == sorted(("flush", path) for path in contents)
    assert events[place + 1 :] == [("flush", ".")]
