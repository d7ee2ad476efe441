import contextlib
import json

import pytest

from scripts.benchmarks import page
from tests.support.backends import BACKEND
from tests.support.programs import call, refused
from tests.support.served import served, write_runs
from trainers.page.app import Page
from trainers.page.served_run import ServedRun


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("runs"))["words"]


def test_answers_are_timed(tmp_path, monkeypatch, run_dir, capsys):
    @contextlib.contextmanager
    def in_a_thread(path):
        assert path == str(run_dir)
        with served(Page([ServedRun(path, "words")])) as port:
            yield port, 1.5

    monkeypatch.setattr(page, "serving", in_a_thread)
    (tmp_path / "text.txt").write_text("word1 word2 word3 " * 4)
    files = [f"--run_dir={run_dir}", f"--text={tmp_path}/text.txt", f"--results={tmp_path}/page.json"]
    call(page, f"--backend={BACKEND}", *files, "--words=5", "--clients=3", "--repeats=2")
    results = json.loads((tmp_path / "page.json").read_text())
    seconds = results["seconds"]
    assert {kind: found["repeats"] for kind, found in seconds.items()} == {"score": 2, "generate": 2, "3 clients": 6}
    assert all(0 < found["low"] <= found["median"] <= found["high"] for found in seconds.values())
    assert results["ready_seconds"] == 1.5 and results["answers_per_second"] > 0
    assert "answers a second for 3 clients" in capsys.readouterr().out
    refused(page, *files, "--words=13", match="--text must have at least 13 words")
