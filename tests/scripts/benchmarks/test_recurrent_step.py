import json

import pytest

from keras_adaptive.data import prepare
from scripts.benchmarks import common, recurrent_step
from tests.support.backends import BACKEND
from tests.support.programs import call
from tests.support.text import write_zipf

SYSTEM = """
--input=word
--body=lstm
--use_bias
--cutoffs=8,16
--num_layers=3
--units=6
--dim=16
--weight_dropout=0.2
--hidden_dropout=0.1
--activation_penalty=2
--batching=streams
--bptt=5
--batch_size=4
--optimizer=adam
--schedule=step_decay
"""


KEPT = "torch_awd_lstm, freed memory kept"


def test_steps_are_timed_on_the_same_text(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "SETTLE", 0)
    write_zipf(tmp_path, words=40)
    words = len(prepare(tmp_path, tmp_path / "words", min_count=1).vocabulary)
    (tmp_path / "awd.flags").write_text(SYSTEM)
    files = [f"--data_dir={tmp_path}/words", f"--system={tmp_path}/awd.flags", f"--results={tmp_path}/steps.json"]
    call(recurrent_step, f"--backend={BACKEND}", *files, "--num_layers=2", "--repeats=1")
    results = json.loads((tmp_path / "steps.json").read_text())
    assert results["settings"]["backend"] == BACKEND and results["settings"]["num_layers"] == 2
    output = 16 * words + words + 2 * 16 + 2  # the tied table, biases, and two clusters
    lstm = 4 * (6 * (16 + 6) + 6) + 4 * (16 * (6 + 16) + 16)
    qrnn = 3 * (16 * 6 + 6) + 3 * (6 * 16 + 16)
    softmax = 16 * (8 + 2) + 16 * 4 + 4 * 8 + 16 * 1 + 1 * (words - 16)
    peer = 16 * words + softmax + lstm + 4 * (6 + 16)  # with two vectors of biases a layer
    found = {name: one["parameters"] for name, one in results["candidates"].items()}
    assert found == {"awd_lstm": output + lstm, "awd_qrnn": output + qrnn, "torch_awd_lstm": peer, KEPT: peer}
    for one in results["candidates"].values():
        assert one["tokens_per_second"] * one["seconds"]["median"] == pytest.approx(4 * 5)
