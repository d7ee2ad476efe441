import os
import re
import subprocess
from pathlib import Path

import pytest

from scripts.experiments import systems

pytestmark = [pytest.mark.once, pytest.mark.processes]

ROOT = Path(__file__).parents[3]


def listed(*names):
    """Returns the flags of each comparison that the list would start."""
    program = ROOT / "scripts" / "experiments" / "claims.sh"
    command = ["bash", program, "data", "runs", *names]
    result = subprocess.run(command, env={**os.environ, "PYTHON": "echo"}, capture_output=True, text=True, check=True)
    return [dict(re.findall(r"--(\w+)=(\S+)", line)) for line in result.stdout.splitlines()]


def test_comparisons_name_systems_that_exist(monkeypatch):
    monkeypatch.chdir(ROOT)
    for comparison in listed():
        found = systems.read(comparison["flagfiles"].split(","), comparison["data_dir"])
        assert found and int(comparison["updates"]) % int(comparison["validations"]) == 0


def test_a_name_chooses_a_comparison():
    assert [comparison["output_dir"] for comparison in listed("small", "cutoffs")] == ["runs/small", "runs/cutoffs"]


def test_the_page_describes_every_comparison():
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    described = re.findall(r"^\| `(\w+)` \|", page.split("## Runs that are listed")[1], re.MULTILINE)[: len(listed())]
    assert described == [Path(comparison["output_dir"]).name for comparison in listed()]
