import json

import pytest

from keras_adaptive.data import prepare
from scripts.benchmarks import common, systems
from tests.support.backends import BACKEND
from tests.support.programs import call
from tests.support.text import write_zipf

COMMON = ["dim=32", "num_blocks=1", "num_heads=2", "ffn_dim=16", "length=8", "batch_size=4"]
FLAGFILES = {
    "common": COMMON,
    "adp_t": ["input=adaptive", "output=adaptive", "tie_words", "cutoffs=8,16"],
    "bpe_t": ["input=word", "output=softmax", "tie_words"],
}


def test_steps_of_systems_are_timed_on_the_same_text(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "SETTLE", 0)
    write_zipf(tmp_path, words=40)
    prepare(tmp_path, tmp_path / "words", min_count=1)
    pieces = prepare(tmp_path, tmp_path / "pieces", min_count=1, subwords=8)
    for name, flags in FLAGFILES.items():
        (tmp_path / f"{name}.flags").write_text("".join(f"--{flag}\n" for flag in flags))
    corpora = [f"--data_dir={tmp_path}/words", f"--subword_dir={tmp_path}/pieces"]
    flagfiles = [f"--common={tmp_path}/common.flags", f"--flagfiles={tmp_path}/adp_t.flags,{tmp_path}/bpe_t.flags"]
    call(systems, f"--backend={BACKEND}", *corpora, *flagfiles, "--repeats=1", f"--results={tmp_path}/steps.json")
    results = json.loads((tmp_path / "steps.json").read_text())
    assert results["settings"]["backend"] == BACKEND
    assert results["settings"]["systems"]["adp_t"]["dim"] == results["settings"]["systems"]["bpe_t"]["dim"] == 32
    body = 4 * (32**2 + 32) + (32 * 16 + 16) + (16 * 32 + 32) + 4 * 32
    tied = results["candidates"]["bpe_t"]
    assert tied["parameters"] == body + 32 * len(pieces.vocabulary)  # one table for input and output
    assert tied["tokens_per_second"] * tied["seconds"]["median"] == pytest.approx(4 * 8)
