"""The benchmark of SavedModels on tiny shapes: its answers must agree, and what it writes can be read."""

import json

import pytest

from tests.support import programs
from tests.support.backends import BACKEND

TINY = "--vocabulary_size=400 --cutoffs=40,160 --dim=16 --num_blocks=1 --ffn_dim=16 --num_heads=2"
SHORT = "--repeats=2 --batch_sizes=2 --words=3"


@pytest.mark.skipif(BACKEND != "tensorflow", reason="SavedModels are made on TensorFlow")
def test_it_runs_and_writes_its_figures(tmp_path, forks):
    flags = [f"--results={tmp_path / 'results.json'}", *TINY.split(), *SHORT.split()]
    done = programs.run("-m", "scripts.benchmarks.serving", *flags)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert [(case["signature"], case["batch_size"]) for case in results["cases"]] == [("next_words", 2), ("score", 2)]
    for case in results["cases"]:
        for time in case["candidates"].values():
            assert 0 < time["low"] <= time["median"] <= time["p99"] <= time["high"]
            assert 1 / time["high"] <= time["requests_per_second"] <= 1 / time["low"]
    assert sum(results["probability_of_tails"]) == pytest.approx(0.26, abs=0.1)
