"""Where programs write their results: never in place of a device, a folder or a file of others."""

import json
import os
import socket
import stat

import pytest

from keras_adaptive.files import check_result, write_json
from tests.support.programs import parsed
from tests.support.refusals import refused
from trainers import analyze, evaluate, passages

pytestmark = pytest.mark.once

KEYS = ("split", "perplexity")
OURS = json.dumps({"split": "valid", "perplexity": 9.0, "tokens": 3, "unit": "word", "members": [], "equal": {}})


@pytest.fixture
def places(tmp_path):
    """A folder with everything that a path may name. A pipe stands for a device, which no test touches."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for link, target in {"link_to_pipe": "pipe", "link_to_folder": "folder", "link_to_link": "link_to_pipe"}.items():
        (tmp_path / link).symlink_to(tmp_path / target)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "link_into_nothing").symlink_to(tmp_path / "text.txt" / "new")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    files = {
        "text.txt": "My notes.\n",
        "empty": "",
        "list.json": "[1]",
        "other.json": '{"split": "valid", "loss": 1.0}',
        "deep.json": "[" * 10**5,
        "bytes": None,
    }
    for name, text in files.items():
        (tmp_path / name).write_bytes(b"\xff\xfe\x00" if text is None else text.encode())
    (tmp_path / "link_to_text").symlink_to(tmp_path / "text.txt")
    return tmp_path


NOT_FILES = ["folder", "folder/", "new/", "pipe", "socket", "circle"]
NOT_FILES += ["link_to_pipe", "link_to_folder", "link_to_link", "link_into_nothing", "text.txt/new", "pipe/new"]
OF_OTHERS = ["text.txt", "empty", "list.json", "other.json", "deep.json", "bytes", "link_to_text"]


def contents(folder):
    """The kind of everything in a folder, and the bytes of its files."""
    paths = sorted(folder.rglob("*"))
    return {path: (stat.S_IFMT(path.lstat().st_mode), path.read_bytes() if path.is_file() else b"") for path in paths}


@pytest.mark.parametrize("name", NOT_FILES + OF_OTHERS)
def test_what_is_no_result_is_refused_and_stays(places, monkeypatch, name):
    monkeypatch.setattr(evaluate, "open_runs", lambda *arguments, **how: [])
    monkeypatch.setattr(evaluate.ensembles, "check_one_vocabulary", lambda runs: None)
    monkeypatch.setattr(passages, "load_corpus", lambda folder: None)
    monkeypatch.setattr(passages, "draw_passages", lambda *arguments, **how: [["a", "b"]])
    before = contents(places)
    path = f"{places}/{name}"
    for keys in (KEYS, ()):
        refused(check_result, path, keys, match=r"The file to write must be new.*Received: .*Pass another path")
    refused(evaluate, "--run_dir=nowhere", f"--output={path}", match="The file to write must be new, or an older resul")
    refused(evaluate, "--run_dir=a,b", f"--output={path}", match="The file to write must be new, or an older result")
    refused(passages, "--data_dir=nowhere", f"--output={path}", match="The file to write must be new. Received")
    assert contents(places) == before


def test_new_names_and_older_results_are_written(places):
    (places / "ours.json").write_text(OURS)
    (places / "link_to_ours").symlink_to("ours.json")
    (places / "link_to_new").symlink_to("made.json")
    for name in ("new.json", "deeper/new.json", "ours.json", "link_to_ours", "link_to_new"):
        check_result(places / name, KEYS)
        write_json(places / name, {"split": name, "perplexity": 9.0})
        assert json.loads((places / name).read_text())["split"] == name
    with pytest.raises(ValueError, match="must be new. Received: .*ours.json', a file that is not such a result"):
        check_result(places / "ours.json")  # without keys no file is an older result
    refused(check_result, "", match="Received: '', an empty name")


def test_a_pipe_that_appears_before_the_result_is_written_is_kept(places):
    refused(write_json, places / "pipe", {}, match="pipe is not a regular file: remove it, or pass another path")
    assert stat.S_ISFIFO((places / "pipe").lstat().st_mode)


def test_an_analysis_does_not_replace_pictures_of_others(places, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(analyze, "open_runs", lambda paths: [])
    (places / "folder" / "loss_by_frequency.png").write_text("mine")
    refused(analyze, "run", f"--output_dir={places}/folder", match="must be a new folder, or .*loss_by_frequency.png")
    (places / "folder" / "analysis.json").write_text("{}")
    refused(analyze, "run", f"--output_dir={places}/folder", match="The file to write must be new, or an older result")
    assert (places / "folder" / "loss_by_frequency.png").read_text() == "mine"


def test_results_of_benchmarks_do_not_replace_files_of_others(places):
    from scripts.benchmarks import common, loss

    with (
        parsed(loss, f"--results={places / 'other.json'}"),
        pytest.raises(ValueError, match="The file to write must be new"),
    ):
        common.check_results()
