"""Steps of models that flagfiles describe, on the same tiny text."""

import json

import pytest

from keras_adaptive.data import load_corpus, prepare
from scripts.benchmarks import common, step
from tests.support.backends import BACKEND
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.text import write_zipf

pytestmark = pytest.mark.once

FLAGFILES = {
    "common": "dim=32 num_blocks=1 num_heads=2 ffn_dim=16 length=8 batch_size=4",
    "adp_t": "input=adaptive output=adaptive tie_words cutoffs=8,16",
    "bpe_t": "input=word output=softmax tie_words",
    "awd": "input=word body=lstm use_bias cutoffs=8,16 num_layers=3 units=6 dim=16 weight_dropout=0.2 "
    "hidden_dropout=0.1 activation_penalty=2 batching=streams bptt=5 batch_size=4 optimizer=adam schedule=step_decay",
}
KEPT = "torch_awd_lstm, freed memory kept"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Contains a corpus of words, one of sub-words, and the flagfiles."""
    monkeypatch.setattr(common, "SETTLE", 0)
    write_zipf(tmp_path, words=40)
    prepare(tmp_path, tmp_path / "words", min_count=1)
    prepare(tmp_path, tmp_path / "pieces", min_count=1, subwords=8)
    for name, flags in FLAGFILES.items():
        (tmp_path / f"{name}.flags").write_text("".join(f"--{flag}\n" for flag in flags.split()))
    return tmp_path


def results_of(folder, case, *arguments):
    files = f"--data_dir={folder}/words", f"--results={folder}/steps.json"
    call(step, f"--case={case}", f"--backend={BACKEND}", *files, "--repeats=1", *arguments)
    results = json.loads((folder / "steps.json").read_text())
    assert results["settings"]["backend"] == BACKEND and results["settings"]["case"] == case
    return results["settings"], results["candidates"]


def size(folder):
    return len(load_corpus(folder).vocabulary)


def test_steps_of_systems_are_timed_on_the_same_text(folder):
    flagfiles = f"--flagfiles={folder}/adp_t.flags,{folder}/bpe_t.flags"
    more = f"--common={folder}/common.flags", f"--subword_dir={folder}/pieces"
    settings, candidates = results_of(folder, "systems", flagfiles, *more)
    assert settings["systems"]["adp_t"]["dim"] == settings["systems"]["bpe_t"]["dim"] == 32
    body = 4 * (32**2 + 32) + (32 * 16 + 16) + (16 * 32 + 32) + 4 * 32
    tied = candidates["bpe_t"]
    assert tied["parameters"] == body + 32 * size(folder / "pieces")  # one table for input and output
    assert tied["tokens_per_second"] * tied["seconds"]["median"] == pytest.approx(4 * 8)


def test_steps_of_recurrent_models_are_timed_on_the_same_text(folder):
    settings, candidates = results_of(folder, "recurrent", f"--system={folder}/awd.flags", "--num_layers=2")
    assert settings["num_layers"] == 2
    words = size(folder / "words")
    output = 16 * words + words + 2 * 16 + 2  # the tied table, biases, and two clusters
    lstm = 4 * (6 * (16 + 6) + 6) + 4 * (16 * (6 + 16) + 16)
    qrnn = 3 * (16 * 6 + 6) + 3 * (6 * 16 + 16)
    softmax = 16 * (8 + 2) + 16 * 4 + 4 * 8 + 16 * 1 + 1 * (words - 16)
    peer = 16 * words + softmax + lstm + 4 * (6 + 16)  # with two vectors of biases a layer
    found = {name: one["parameters"] for name, one in candidates.items()}
    assert found == {"awd_lstm": output + lstm, "awd_qrnn": output + qrnn, "torch_awd_lstm": peer, KEPT: peer}
    for one in candidates.values():
        assert one["tokens_per_second"] * one["seconds"]["median"] == pytest.approx(4 * 5)


def test_a_case_says_what_it_needs():
    refused(step, "--case=recurrent", match="--case=recurrent needs --data_dir")
    refused(step, "--case=big_lstm", "--backend=jax", match="needs --backend=tensorflow. Received: --backend=jax")
