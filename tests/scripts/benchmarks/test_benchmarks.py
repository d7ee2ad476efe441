"""Each benchmark on tiny shapes: what it compares must agree, and what it writes can be read."""

import importlib
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from scripts.benchmarks import common, evaluation, memory
from scripts.benchmarks.peers.torch_losses import KERNELS
from tests.support import programs
from tests.support.backends import BACKEND
from tests.support.programs import call

pytestmark = [pytest.mark.processes, pytest.mark.once]

WORDS = ["--vocabulary_size=2000", "--cutoffs=200"]
BODY = ["--dim=32", "--num_blocks=1", "--ffn_dim=32", "--num_heads=2"]
PROGRAMS = {  # of a benchmark, or of one of its cases
    "loss": [*WORDS, "--dim=32", "--rows=48", "--repeats=1", "--nomemory"],
    "loss, one band": ["--vocabulary_size=300", "--cutoffs=", "--dim=32", "--rows=48", "--repeats=1", "--nomemory"],
    "loss --case=sampled": [
        *("--vocabulary_sizes=900,2000", "--dim=8", "--rows=12", "--num_samples=20", "--repeats=1", "--nomemory"),
    ],
    "step": [*WORDS, *BODY, "--length=16", "--batch_size=2", "--repeats=1", "--dtype=mixed_bfloat16"],
    "scaling": [*WORDS, *BODY, "--devices=2", "--length=8", "--rows=1", "--repeats=1"],
    "generation": [*WORDS, "--tail_shares=0.26", "--dim=64", "--batch_sizes=3", "--k=5", "--repeats=1"],
    "generation --case=cache": [*WORDS, *BODY, "--lengths=4", "--repeats=1"],
    "generation --case=word": [*WORDS, *BODY, "--tail_shares=0.26", "--words=2", "--repeats=1"],
    "generation --case=peer": [*WORDS, *BODY, "--tail_shares=0.26", "--words=2", "--batch_size=2", "--repeats=1"],
    "generation --case=bodies": [
        *(*BODY, "--words=2", "--num_local=2", "--num_global=1", "--global_window=3", "--lengths=4,9", "--repeats=1"),
    ],
    "layers": [
        *("--batch_size=2", "--length=9", "--dim=4", "--num_local=3", "--num_global=2", "--global_window=4"),
        *("--repeats=1", "--nomemory"),
    ],
    "layers --case=recurrence": ["--batch_size=2", "--length=3", "--input_dim=4", "--units=5", "--repeats=1"],
    "recommender": ["--items=50", "--dim=4", "--batch_size=8", "--num_samples=9", "--repeats=1", "--nomemory"],
    "recommender --case=ranking": ["--items=900", "--dim=16", "--users=9", "--repeats=1", "--nomemory"],
    "recommender --case=retrieval": ["--items=900", "--dim=16", "--repeats=1", "--nomemory"],
    "evaluation": [*WORDS, *BODY, "--block=16", "--batch_size=2", "--tokens=100", "--repeats=1"],
    "checkpoints": [*WORDS, *BODY, "--length=8", "--rows=2", "--updates=1", "--repeats=1"],
}
if BACKEND != "torch":  # torch runs all of them, and the peers, which are torch's
    SHORT = ("loss", "loss, one band", "loss --case=sampled", "step", "scaling", "generation", "evaluation")
    PEER = ("generation --case=peer",) if BACKEND == "jax" else ()
    PROGRAMS = {name: PROGRAMS[name] for name in (*SHORT, *PEER)}
    PROGRAMS["step"].append("--nopeers")
if BACKEND == "jax":
    del PROGRAMS["loss, one band"]  # test_on_gpu.py runs it
if BACKEND == "tensorflow":  # of the peer
    sizes = ["--dim=4", "--units=6", "--batch_size=3", "--length=4", "--num_samples=9"]
    PROGRAMS["step --case=big_lstm"] = ["--vocabulary_size=50", *sizes, "--repeats=1"]


def module_of(program):
    """Returns the name of the module of a row of the table."""
    return f"scripts.benchmarks.{program.split(',')[0].split()[0]}"


@pytest.mark.filterwarnings("default")  # the peers' own are not ours
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.each_backend
def test_it_runs_and_writes_its_figures(program, tmp_path, monkeypatch, forks):
    """Runs in this process, where the backend is chosen already, except for scaling, which starts processes."""
    monkeypatch.setattr(common, "SETTLE", 0)
    if BACKEND != "torch":
        monkeypatch.setattr(evaluation, "PEERS", dict(list(evaluation.PEERS.items())[:1]))
    script, case = importlib.import_module(module_of(program)), re.findall(r"--case=\w+", program)
    call(script, *case, f"--backend={BACKEND}", f"--results={tmp_path / 'results.json'}", *PROGRAMS[program])
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["settings"]["backend"] == BACKEND and results["machine"]["versions"]["keras"]
    for case in results.get("cases", [results]):
        assert set(case.get("missing", ())) <= set(KERNELS)  # which are packages that the tests do not install
        for figures in case["candidates"].values():
            time = figures.get("seconds", figures)
            assert 0 < time["low"] <= time["median"] <= time["high"]


def test_each_is_a_program_that_chooses_its_backend_itself():
    """No module that a benchmark imports at its top imports Keras."""
    modules = sorted({module_of(program) for program in PROGRAMS})
    code = f"import {', '.join(modules)}; scripts.benchmarks.common.choose_backend({BACKEND!r})"
    done = programs.run("-c", code, KERAS_BACKEND="torch" if BACKEND == "jax" else "jax")
    assert done.returncode == 0, done.stderr
    for module in modules:
        done = programs.run("-m", module, "--helpshort")
        arguments = [flag for program in PROGRAMS if module_of(program) == module for flag in PROGRAMS[program]]
        for flag in ("--backend", *arguments):
            if not flag.startswith("--no"):
                assert f"{flag.split('=')[0]}:" in done.stdout, done.stderr


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Stands in for the project: a repository with one commit."""

    def git(*arguments):
        name = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", tmp_path, *name, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "begin")
    monkeypatch.setattr(common, "ROOT", tmp_path)
    return tmp_path


class Program:
    """A benchmark of which only --results counts."""

    define_flags = staticmethod(lambda: common.define_flags(1))
    main = staticmethod(lambda: common.save((), seconds=1))


def test_results_in_the_repository_come_from_a_commit(repository, tmp_path_factory):
    results = repository / common.RESULTS / "time.json"
    for _ in range(2):  # results that are not committed yet do not count as changes
        call(Program, f"--results={results}")
    commit = json.loads(results.read_text())["machine"]["commit"]
    assert commit and not commit.endswith("-dirty")
    results.unlink()
    (repository / "code.py").write_text("2")
    with pytest.raises(ValueError, match="code.py has changes: commit or stash them"):
        call(Program, f"--results={results}")
    assert not results.exists()
    outside = tmp_path_factory.mktemp("outside") / "time.json"
    call(Program, f"--results={outside}")
    assert json.loads(outside.read_text())["machine"]["commit"] == f"{commit}-dirty"


def test_nothing_is_measured_that_could_not_be_written(repository):
    (repository / "new.py").write_text("a program that is not committed")
    code = f"import pathlib; from scripts.benchmarks import common; common.ROOT = pathlib.Path({str(repository)!r}); "
    code += "common.run(lambda: print('measured'), lambda: common.define_flags(1))"
    done = programs.run("-c", code, f"--results={repository}/time.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "new.py has changes" in done.stderr and len(done.stderr.splitlines()) == 1


def test_functions_take_turns_and_the_first_turns_do_not_count():
    calls = []
    seconds = common.time_interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2, warmup=1)
    assert calls == ["a", "b"] * 3
    assert [len(seconds[name]) for name in "ab"] == [2, 2]


def test_the_functions_own_seconds():
    assert common.time_interleaved({"a": lambda: [1.0, 2.0]}, 2, warmup=0, timed=True) == {"a": [1.0, 2.0] * 2}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read as Linux tells it")
def test_peak_bytes_sees_what_is_held_for_a_moment():
    size = 64 * 2**20
    peak = memory.peak_bytes(lambda: np.ones(size, "uint8").sum())
    assert 0.9 * size < peak < 1.5 * size
