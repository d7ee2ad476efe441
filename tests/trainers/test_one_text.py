"""One text has one number, whichever program, function or format computes it."""

import json

import numpy as np
import pytest

import keras_adaptive
from keras_adaptive.data import load_corpus, prepare
from tests.support.programs import call, refused
from tests.support.served import write_run
from tests.support.text import write_zipf
from tests.support.tiny import language_model
from trainers import evaluate

LENGTH = 8


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = write_zipf(tmp_path_factory.mktemp("text"), words=20)
    corpus = prepare(folder, folder / "corpus", min_count=1)
    flags = f"--data_dir={folder}/corpus\n--length={LENGTH}\n"
    model = language_model(len(corpus.vocabulary))
    return write_run(folder / "run", model, corpus.vocabulary, corpus.metadata["tokenizer"], flags=flags).path


def test_evaluation_reads_a_text_as_python_does(run_dir, capsys):
    call(evaluate, f"--run_dir={run_dir}", "--split=valid")
    lm, text = keras_adaptive.load(run_dir), (run_dir.parent / "valid.txt").read_text()
    result = json.loads((run_dir / "evaluation_valid.json").read_text())
    assert result["perplexity"] == pytest.approx(lm.perplexity(text), rel=1e-5)
    printed, reading = capsys.readouterr().out, "in windows of 8 tokens, 4 of them context"
    assert result["reading"] == lm.score(text)["reading"] == reading and f"read {reading}" in printed
    assert "Training validates in blocks of 8 tokens without context: --context=0 repeats that number" in printed
    call(evaluate, f"--run_dir={run_dir}", "--split=valid", "--context=0")
    ids = np.asarray(load_corpus(run_dir.parent / "corpus").tokens("valid"), "int32").reshape(-1, LENGTH)
    nll = lm.model.nll(np.roll(ids.ravel(), 1).reshape(ids.shape), ids)
    assert json.loads((run_dir / "evaluation_valid.json").read_text())["loss"] == pytest.approx(nll.mean(), rel=1e-5)
    assert "Training validates" not in capsys.readouterr().out
    call(evaluate, f"--run_dir={run_dir}", "--split=valid", "--block=2")
    result = json.loads((run_dir / "evaluation_valid.json").read_text())
    assert (result["block"], result["context"]) == (2, LENGTH - 2)
    assert result["perplexity"] == pytest.approx(keras_adaptive.load(run_dir, context=6).perplexity(text), rel=1e-5)


def test_windows_that_a_run_cannot_have_are_refused(run_dir):
    streams = "--blocks_of=streams needs a body that carries a state .* Received: --blocks_of=streams for .*attention"
    refused(evaluate, f"--run_dir={run_dir}", "--blocks_of=streams", match=streams)
    refused(evaluate, f"--run_dir={run_dir}", "--context=8", match="--context must be below 8, .* or --block must")
