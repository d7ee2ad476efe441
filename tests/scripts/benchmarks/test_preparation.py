import json
from pathlib import Path

import pytest

from scripts.benchmarks import preparation
from tests.support.programs import call
from tests.support.text import write_splits

pytestmark = pytest.mark.once


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read as Linux tells it")
def test_it_runs_and_writes_its_figures(tmp_path):
    write_splits(tmp_path, "the cat sat on the mat\n" * 1000)
    output = tmp_path / "results.json"
    flags = [f"--source={tmp_path}", "--megabytes=1", "--sentences=1000", "--peers=fairseq", f"--results={output}"]
    call(preparation, *flags)
    results = json.loads(output.read_text())
    assert results["preparation"].keys() == {"1", "2"} and 10**6 <= results["text_bytes"] < 1.03 * 10**6
    assert all(found["bytes_per_second"] > 0 for found in results["preparation"].values())
    assert results["peers"]["fairseq"]["tokens"] == 7 * (results["text_bytes"] // 23)
    assert results["sentences"]["tokens"] > 20_000 and results["sentences"]["index"]["peak_bytes"] > 6000
