"""Each kind of server on tiny shapes: its answers must agree, and what the benchmark writes can be read."""

import contextlib
import json
import shutil

import pytest

from scripts.benchmarks import common, serving
from tests.support import programs
from tests.support.backends import BACKEND
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.served import served, write_runs
from trainers import score
from trainers.page.app import Page
from trainers.page.served_run import ServedRun

pytestmark = pytest.mark.processes

TINY = "--vocabulary_size=400 --cutoffs=40,160 --dim=16 --num_blocks=1 --ffn_dim=16 --num_heads=2".split()
SHORT = ["--repeats=2", "--batch_sizes=2", "--words=3"]


@pytest.mark.skipif(BACKEND != "tensorflow", reason="SavedModels are made on TensorFlow")
def test_requests_to_saved_models_are_timed(tmp_path, forks):
    flags = ["--backend=tensorflow", f"--results={tmp_path / 'results.json'}", *TINY, *SHORT]
    done = programs.run("-m", "scripts.benchmarks.serving", *flags)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert [(case["signature"], case["batch_size"]) for case in results["cases"]] == [("next_words", 2), ("score", 2)]
    for case in results["cases"]:
        for time in case["candidates"].values():
            assert 0 < time["low"] <= time["median"] <= time["p99"] <= time["high"]
            assert 1 / time["high"] <= time["requests_per_second"] <= 1 / time["low"]
    assert sum(results["probability_of_tails"]) == pytest.approx(0.26, abs=0.1)


@pytest.mark.once
def test_answers_of_the_page_are_timed(tmp_path, monkeypatch, capsys):
    run_dir = write_runs(tmp_path)["words"]

    @contextlib.contextmanager
    def in_a_thread(path):
        assert path == str(run_dir)
        with served(Page([ServedRun(path, "words")])) as port:
            yield port, 1.5

    monkeypatch.setattr(serving, "server", in_a_thread)
    (tmp_path / "text.txt").write_text("word1 word2 word3 " * 4)
    files = [f"--run_dir={run_dir}", f"--text={tmp_path}/text.txt", f"--results={tmp_path}/page.json"]
    page = ["--case=page", f"--backend={BACKEND}", "--pause=0", *files]
    call(serving, *page, "--words=5", "--clients=3", "--repeats=2")
    results = json.loads((tmp_path / "page.json").read_text())
    seconds = results["seconds"]
    assert {kind: found["repeats"] for kind, found in seconds.items()} == {"score": 2, "generate": 2, "3 clients": 6}
    assert all(0 < found["low"] <= found["median"] <= found["high"] for found in seconds.values())
    assert results["ready_seconds"] == 1.5 and results["answers_per_second"] > 0
    assert "answers a second for 3 clients" in capsys.readouterr().out
    refused(serving, *page, "--words=13", match="--text must have at least 13 words")


def test_a_cold_start_scores_a_line(tmp_path, monkeypatch, capsys):
    """Runs in this process; only the benchmark starts new processes."""
    commands, run = [], tmp_path / "run"

    def python(*arguments):
        commands.append(arguments)
        if arguments[0] == "-m":
            shutil.copytree(arguments[2].split("=")[1], run, dirs_exist_ok=True)
        return "0.02\n" if "keras_adaptive" in arguments[1] else ""

    monkeypatch.setattr(common, "SETTLE", 0)
    monkeypatch.setattr(serving, "python", python)
    results = tmp_path / "results.json"
    call(serving, "--case=cold_start", f"--backend={BACKEND}", *TINY, "--repeats=1", f"--results={results}")
    candidates = json.loads(results.read_text())["candidates"]
    assert set(candidates) == {"import keras", "score", "import keras_adaptive"}
    assert candidates["import keras_adaptive"]["median"] == 0.02
    assert commands[0] == ("-c", "import keras") and commands[1][:2] == ("-m", "trainers.score")
    call(score, f"--run_dir={run}", f"--input={run / 'line.txt'}")
    assert "7 tokens, perplexity" in capsys.readouterr().out
