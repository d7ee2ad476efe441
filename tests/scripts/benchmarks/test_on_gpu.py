"""One command for a GPU: its parts on tiny shapes, parts that fail, and the tables of its figures."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.benchmarks import common, on_gpu
from scripts.benchmarks.peers.torch_losses import KERNELS
from scripts.tables import TABLES, gpu
from tests.support import programs
from tests.support.backends import BACKEND
from tests.support.programs import ROOT, call, parsed

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(BACKEND == "tensorflow", reason="the command is for torch and JAX"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.once,
]
PROGRAMS = [name for name, part in on_gpu.PARTS.items() if part.program != "pytest"]
IN_ITS_PROCESS = "training in float16"
SAME = "plain softmax of 267744 words", "task in float32"  # as those of 50,000 words and bfloat16, on tiny shapes
RUN = [name for name in PROGRAMS if name not in (IN_ITS_PROCESS, *SAME)]
RUN = RUN if BACKEND == "torch" else ["plain softmax of 50000 words"]  # JAX would compile the same steps again


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_part_is_a_program_with_these_flags(name):
    part = on_gpu.PARTS[name]
    with parsed(importlib.import_module(f"scripts.benchmarks.{part.program}"), *part.arguments) as rest:
        assert rest == []


@pytest.mark.parametrize("name", RUN)
@pytest.mark.each_backend
def test_parts_on_tiny_shapes_make_rows_of_tables(name, tmp_path, monkeypatch):
    monkeypatch.setattr(common, "SETTLE", 0)
    part = on_gpu.PARTS[name]
    results = tmp_path / "results.json"
    program = importlib.import_module(f"scripts.benchmarks.{part.program}")
    call(program, f"--backend={BACKEND}", f"--results={results}", *part.tiny)
    figures = on_gpu.figures_of(part, results)
    assert "machine" not in figures
    if part.program == "step":
        check_facts(figures["facts"])
    if part.program == "loss":
        assert all(set(case.get("missing", ())) <= set(KERNELS) for case in figures["cases"])
        times = [one.get("seconds", one) for case in figures["cases"] for one in case["candidates"].values()]
        assert times and all(0 < time["low"] <= time["median"] <= time["high"] for time in times)
    rows = rows_of(tmp_path, monkeypatch, {name: figures})
    assert rows and not any("Not measured" in row for row in rows)


def check_facts(facts):
    assert facts["last_loss"] < facts["first_loss"] and facts["updates"] == 12
    assert facts["share"] == facts["operations_per_second"] / facts["product_operations_per_second"] > 0


def rows_of(folder, monkeypatch, parts):
    """The rows of all tables of a result file with these parts, without the rows of tables that have none."""
    results = {"machine": {"device": "GPU"}, "backends": {BACKEND: parts}}
    (folder / "gpu").mkdir()
    (folder / "gpu" / "gpu.json").write_text(json.dumps(results))
    monkeypatch.setattr(gpu, "RESULTS", folder)
    tables = [table for name, table in TABLES.items() if name.startswith("gpu_")]
    return [row for table in tables for row in table().splitlines()[2:] if row.startswith("| GPU")]


def test_a_table_without_figures_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "RESULTS", tmp_path)
    assert TABLES["gpu_tests"]() == "Not measured yet.\n"


def test_an_error_is_a_row_of_its_table(tmp_path, monkeypatch):
    (row,) = rows_of(tmp_path, monkeypatch, {"loss in float32": {"error": "a | b", "log": "", "wall_seconds": 1}})
    assert "loss in float32: a \\| b |" in row


SLEEP = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
LINES = {
    "works": "import os, sys; open(sys.argv[1], 'w').write('{\"on\": \"%s\"}' % os.environ['KERAS_BACKEND'])",
    "fails": "raise SystemExit('first\\nsecond')",
    "takes long": SLEEP,
    "last": "0",
}


def test_a_part_that_fails_does_not_end_the_others(tmp_path, monkeypatch):
    limits = {"works": 60, "fails": 60, "takes long": 0.5, "last": 60}
    parts = {name: on_gpu.Part("loss", (limit, limit), [name], [name]) for name, limit in limits.items()}
    monkeypatch.setattr(on_gpu, "PARTS", parts)
    command = lambda part, results: [sys.executable, "-c", LINES[part.tiny[0]], str(results)]  # noqa: E731
    monkeypatch.setattr(on_gpu, "command_of", command)
    monkeypatch.setattr(on_gpu, "device", lambda: "Tiny GPU (1)")
    (tmp_path / "tiny_gpu_1.json").write_text(json.dumps({"backends": {"other": {"tests": 1}}}))
    call(on_gpu, f"--backend={BACKEND}", f"--folder={tmp_path}", "--parts=works,fails,takes long", "--tiny")
    call(on_gpu, f"--backend={BACKEND}", f"--folder={tmp_path}", "--parts=last", "--seconds=0")
    results = json.loads((tmp_path / "tiny_gpu_1.json").read_text())
    assert results["machine"]["device"] == "Tiny GPU (1)" and results["backends"]["other"] == {"tests": 1}
    figures = results["backends"][BACKEND]
    assert all(part.pop("wall_seconds") < 60 for part in figures.values())
    assert figures["works"] == {"on": BACKEND}
    assert figures["fails"] == {"error": "second", "log": "first\nsecond\n"}
    assert figures["takes long"]["error"] == "took longer than 0 s"
    assert "Current thread" in figures["takes long"]["log"]
    assert figures["last"] == {"error": "the time was up"}


TESTS = """
import pytest

def test_a(): pass

def test_b(): assert 1 == 2

@pytest.mark.skip
def test_c(): pass
"""


def test_results_of_tests_are_counted(tmp_path):
    (tmp_path / "test_sums.py").write_text(TESTS)
    # pytest names tests relative to its root, which would be a folder above a clone in the temporary folder
    part = on_gpu.PARTS["tests"]._replace(tiny=[f"--rootdir={tmp_path}", str(tmp_path / "test_sums.py")])
    with parsed(on_gpu, f"--backend={BACKEND}", "--tiny"):
        figures = on_gpu.run_part(part, 60)
    failed = figures.pop("failed_tests")
    assert figures == {"passed": 1, "failed": 1, "skipped": 1}
    assert [*failed] == ["test_sums::test_b"] and failed["test_sums::test_b"].startswith("assert 1 == 2")


def test_every_part_can_be_chosen():
    with parsed(on_gpu, f"--parts={','.join(on_gpu.PARTS)}"):
        assert on_gpu.FLAGS.parts == list(on_gpu.PARTS)


def test_the_command_adds_a_backend_to_the_file_of_the_device(tmp_path):
    script = ROOT / "scripts/benchmarks/on_gpu.sh"
    environment = {**os.environ, "PYTHON": sys.executable}
    for backend in ("torch", "jax"):
        command = ["bash", script, backend, tmp_path, "--seconds=0", "--parts=recurrence"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    assert [*json.loads(path.read_text())["backends"]] == ["torch", "jax"]
    assert all(Path(ROOT, path).exists() for path in on_gpu.TESTS)


def test_no_part_needs_tensorflow(tmp_path):
    """A whole step, in a process that cannot import TensorFlow."""
    part = on_gpu.PARTS[IN_ITS_PROCESS]
    arguments = ["step", f"--backend={BACKEND}", f"--results={tmp_path / 'step.json'}", *part.tiny]
    code = "import sys; sys.modules['tensorflow'] = None; import runpy; sys.argv = sys.argv[1:]; "
    code += "runpy.run_module('scripts.benchmarks.step', run_name='__main__')"
    done = programs.run("-c", code, *arguments)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "step.json").read_text())["facts"]
    check_facts(facts)
    assert facts["loss_scale"] == 2**15 and facts["steps_taken"] == facts["updates"]
