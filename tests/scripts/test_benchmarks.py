"""Each benchmark on tiny shapes: what it compares must agree, and what it writes can be read."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import benchmarking
from tests.support.backends import BACKEND
from tests.support.programs import call

ROOT = Path(__file__).parents[2]
WORDS = ["--vocabulary=2000", "--cutoffs=200,800"]
PROGRAMS = {
    "loss": [*WORDS, "--dim=32", "--rows=48", "--repeats=1", "--nomemory"],
    "loss, one band": ["--vocabulary=300", "--cutoffs=", "--dim=32", "--rows=48", "--repeats=1", "--nomemory"],
    "step": [*WORDS, "--dim=32", "--blocks=1", "--ffn=64", "--heads=2", "--length=16", "--batch_size=2", "--repeats=1"],
    "cache": [*WORDS, "--dim=32", "--blocks=1", "--ffn=32", "--heads=2", "--lengths=4", "--repeats=1"],
    "scaling": [*WORDS, "--devices=2", "--dim=32", "--blocks=1", "--ffn=32", "--heads=2", "--length=8", "--rows=1"]
    + ["--updates=1", "--repeats=1"],
    "generation": [*WORDS, "--dim=64", "--batch_sizes=3", "--k=5", "--repeats=1"],
}


@pytest.mark.filterwarnings("default")  # the peers' own are not ours
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_runs_and_writes_its_figures(program, tmp_path, monkeypatch):
    """In this process, where the backend is chosen already."""
    monkeypatch.setattr(benchmarking, "choose_backend", lambda name: None)
    monkeypatch.setattr(benchmarking, "SETTLE", 0)
    script = importlib.import_module(f"benchmark_{program.split(',')[0]}")
    call(script, f"--backend={BACKEND}", f"--results={tmp_path / 'results.json'}", *PROGRAMS[program])
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["settings"]["backend"] == BACKEND and results["machine"]["versions"]["keras"]
    for case in results.get("cases", [results]):
        for figures in case["candidates"].values():
            time = figures.get("seconds", figures)
            assert 0 < time["low"] <= time["median"] <= time["high"]


def test_each_is_a_program_that_chooses_its_backend_itself():
    """Nothing that one imports at its top imports Keras."""
    scripts = sorted({f"benchmark_{program.split(',')[0]}" for program in PROGRAMS})
    code = f"import benchmarking, {', '.join(scripts)}; benchmarking.choose_backend({BACKEND!r})"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
    for script in scripts:
        command = [sys.executable, ROOT / "scripts" / f"{script}.py", "--helpshort"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert "--backend:" in done.stdout, done.stderr


def test_turns_are_taken_in_turns_without_the_first():
    calls = []
    seconds = benchmarking.in_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2, warmup=1)
    assert calls == ["a", "b"] * 3
    assert [len(seconds[name]) for name in "ab"] == [2, 2]


def test_the_functions_own_seconds():
    assert benchmarking.in_turns({"a": lambda: [1.0, 2.0]}, 2, warmup=0, timed=True) == {"a": [1.0, 2.0] * 2}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read as Linux tells it")
def test_peak_bytes_sees_what_is_held_for_a_moment():
    size = 64 * 2**20
    peak = benchmarking.peak_bytes(lambda: np.ones(size, "uint8").sum())
    assert 0.9 * size < peak < 1.5 * size
