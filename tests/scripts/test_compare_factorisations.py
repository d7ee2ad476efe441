import json

import pytest

import benchmark_factorisations
import benchmarking
import compare_factorisations
from keras_adaptive.data import load_corpus, prepare
from tests.support.backends import BACKEND
from tests.support.programs import call

CONFIG = """# A comment
--dim=32
--num_blocks=1
--num_heads=2
--ffn_dim=16
--cutoffs=8,16
--length=8
--batch_size=4
--updates=4
--evaluate_every=2
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    lines = [" ".join(f"w{(i * j) % 23}" for j in range(8)) for i in range(40)]
    for split, count in (("train", 40), ("valid", 9), ("test", 11)):
        (folder / f"{split}.txt").write_text("\n".join(lines[:count]) + "\n")
    prepare(folder, folder / "words", min_count=1)
    prepare(folder, folder / "pieces", min_count=1, subwords=8)
    (folder / "tiny.flags").write_text(CONFIG)
    return folder


def compare(text, *arguments):
    folders = [f"--data_dir={text}/words", f"--config={text}/tiny.flags", f"--output_dir={text}/runs"]
    call(compare_factorisations, *folders, *arguments)


def test_models_are_trained_and_compared_per_word(text, monkeypatch):
    """Each in a process of its own."""
    monkeypatch.chdir(text)
    compare(text, "--names=ADP-T,BPE-T", f"--subword_dir={text}/pieces")
    table = json.loads((text / "runs/comparison.json").read_text())
    runs = {run["name"]: run for run in json.loads((text / "runs/analysis.json").read_text())["runs"]}
    for name, run in (("ADP-T", runs["adp-t_1"]), ("BPE-T", runs["bpe-t_1"])):
        assert table[name]["seeds"] == 1 and table[name]["test"] == pytest.approx(run["perplexity"]["test"])
    assert runs["bpe-t_1"]["words"] == runs["adp-t_1"]["words"]


def test_steps_are_timed_on_the_same_settings(text, monkeypatch):
    monkeypatch.setattr(benchmarking, "SETTLE", 0)
    corpora = [f"--data_dir={text}/words", f"--subword_dir={text}/pieces"]
    flags = [f"--flagfile={text}/tiny.flags", "--names=ADP-T,BPE-T", "--repeats=1", f"--results={text}/steps.json"]
    call(benchmark_factorisations, *corpora, *flags)
    results = json.loads((text / "steps.json").read_text())
    assert results["settings"]["dim"] == 32 and results["settings"]["backend"] == BACKEND
    body = 4 * (32**2 + 32) + (32 * 16 + 16) + (16 * 32 + 32) + 4 * 32
    pieces = len(load_corpus(text / "pieces").vocabulary)
    assert results["candidates"]["BPE-T"]["parameters"] == body + 32 * pieces  # one table for in and out


def test_figures_are_means_over_seeds_and_rare_words_are_weighted():
    rare = [{"low": 1, "high": 10, "nll": 9.0, "tokens": 3}, {"low": 0, "high": 1, "nll": 5.0, "tokens": 1}]
    bins = [
        *rare,
        {"low": 10, "high": 100, "nll": 1.0, "tokens": 50},
        {"low": 100, "high": None, "nll": 1, "tokens": 9},
    ]
    run = {"perplexity": {"valid": 3.0, "test": 4.0}, "seconds": 7, "parameters": 5, "by_frequency": bins}
    run["perplexity_of_known"] = {"valid": 2.0, "test": 3.0}
    other = {**run, "perplexity": {"valid": 5.0, "test": 4.5}}
    expected = {"seeds": 2, "parameters": 5, "valid": 4.0, "test": 4.25, "known": 3.0, "seconds": 7.0, "rare": 8.0}
    assert compare_factorisations.means([run, other]) == expected


def test_bad_names_and_a_missing_corpus_of_subwords_are_told_of(text):
    for names, message in (("LSTM", "Received: LSTM"), ("BPE", "--subword_dir")):
        with pytest.raises(SystemExit, match=message):
            compare(text, f"--names={names}")


def test_a_program_that_fails_ends_the_comparison():
    with pytest.raises(ValueError, match="-c raise SystemExit.1. failed, see above. The same command goes on from"):
        compare_factorisations.call("-c", "raise SystemExit(1)")
