"""One text has one number, whichever program, function or format computes it; TensorFlow has them all."""

import json
import math
from types import SimpleNamespace

import keras
import numpy as np
import pytest

import keras_adaptive
from keras_adaptive.data import EOS, load_corpus, prepare
from keras_adaptive.evaluation import word_losses
from keras_adaptive.export.graph_text import GraphText
from keras_adaptive.export.saved_model import with_output_for_inference
from keras_adaptive.export.served_model import ServedModel
from keras_adaptive.hub import AdaptiveCausalLM
from keras_adaptive.layers import LSTMDecoder, NPLMDecoder, QRNNDecoder
from keras_adaptive.memory import ContinuousCache, adapting
from keras_adaptive.models import LanguageModel
from keras_adaptive.text import SavedTextModel
from tests.support.backends import BACKEND
from tests.support.programs import ROOT
from tests.support.refusals import refused
from tests.support.runs import evaluated, scored
from tests.support.served import write_run
from tests.support.text import prepared, write_splits, write_zipf
from tests.support.tiny import language_model
from tests.support.weights import randomize
from trainers import evaluate
from trainers.experiments.word_losses import digest
from trainers.page.served_run import ServedRun, summed

LENGTH = 8
pytestmark = pytest.mark.usefixtures("eager_predictions")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    corpus = prepared(write_zipf(tmp_path_factory.mktemp("text"), words=20))
    folder, flags = corpus.data_dir.parent, f"--data_dir={corpus.data_dir}\n--length={LENGTH}\n"
    return write_run(folder / "run", language_model(len(corpus.vocabulary)), corpus.vocabulary, flags=flags).path


@pytest.mark.once
def test_evaluation_reads_a_text_as_python_does(run_dir, capsys):
    lm, text = keras_adaptive.load(run_dir), (run_dir.parent / "valid.txt").read_text()
    result = evaluated(run_dir)
    assert result["perplexity"] == pytest.approx(lm.perplexity(text), rel=1e-5)
    printed, reading = capsys.readouterr().out, "in windows of 8 tokens, 4 of them context"
    assert result["reading"] == lm.score(text)["reading"] == reading and f"read {reading}" in printed
    assert "Training validates in blocks of 8 tokens without context: --context=0 repeats that number" in printed
    loss = evaluated(run_dir, "--context=0")["loss"]
    ids = np.asarray(load_corpus(run_dir.parent / "corpus").tokens("valid"), "int32").reshape(-1, LENGTH)
    nll = lm.model.nll(np.roll(ids.ravel(), 1).reshape(ids.shape), ids)
    assert loss == pytest.approx(nll.mean(), rel=1e-5)
    assert "Training validates" not in capsys.readouterr().out
    result = evaluated(run_dir, "--block=2")
    assert (result["block"], result["context"]) == (2, LENGTH - 2)
    assert result["perplexity"] == pytest.approx(keras_adaptive.load(run_dir, context=6).perplexity(text), rel=1e-5)


def test_a_cache_is_tuned_on_valid_and_mixed_in(run_dir, capsys):
    """Compares with the hidden states that the model gives for the windows, in the order of the text."""
    result, kept = evaluated(run_dir, "--context=0", "--cache=30", split="test"), {}
    model, corpus = keras_adaptive.load(run_dir).model, load_corpus(run_dir.parent / "corpus")
    for split in ("valid", "test"):
        ids = np.asarray(corpus.tokens(split), "int32").reshape(-1, LENGTH)
        inputs = np.append(EOS, ids.ravel()[:-1]).reshape(ids.shape)
        hidden = keras.ops.convert_to_numpy(model(inputs)).reshape(ids.size, -1)
        kept[split] = hidden, ids.ravel(), model.nll(inputs, ids).ravel()
    cache = ContinuousCache.tuned(30, *kept["valid"])
    assert result["cache"] == pytest.approx(cache._asdict())
    assert result["loss"] == pytest.approx(cache.nll(*kept["test"]).mean(), rel=1e-5)
    assert f"Mixed with a cache of 30 words by a share of {cache.share}, tuned on valid" in capsys.readouterr().out
    assert evaluated(run_dir, "--context=0", split="test")["cache"] is None
    refused(
        evaluate,
        f"--run_dir={run_dir},{run_dir}",
        "--cache=3",
        f"--output={run_dir}/new.json",
        match="--cache supports a single run. Received: --cache=3 for several",
    )


@pytest.mark.once
def test_a_model_learns_from_the_text_that_it_has_read(run_dir, capsys):
    """The folder keeps the model that was trained, and the result of that model."""
    before, plain = digest(run_dir / "best.keras"), evaluated(run_dir, split="test")
    result = evaluated(run_dir, "--dynamic=0.1", "--block=4", split="test")
    model, corpus = keras_adaptive.load(run_dir).model, load_corpus(run_dir.parent / "corpus")
    nll, _ = word_losses(adapting(model, 0.1), corpus, "test", block=4, context=LENGTH - 4, batch_size=1)
    assert result["loss"] == pytest.approx(nll.mean(), rel=1e-5) and result["loss"] != plain["loss"]
    assert (result["dynamic"], plain["dynamic"]) == (0.1, None)
    assert "The model has learned from each batch after its losses, by a rate of 0.1" in capsys.readouterr().out
    assert digest(run_dir / "best.keras") == before
    assert json.loads((run_dir / "evaluation_test.json").read_text())["loss"] == plain["loss"]
    refused(evaluate, f"--run_dir={run_dir}", "--dynamic=-1", match="--dynamic")


@pytest.mark.once
def test_windows_that_a_run_cannot_have_are_refused(run_dir):
    streams = "--blocks_of=streams needs a body that carries a state .* Received: --blocks_of=streams for .*attention"
    refused(evaluate, f"--run_dir={run_dir}", "--blocks_of=streams", match=streams)
    refused(evaluate, f"--run_dir={run_dir}", "--context=8", match="--context must be below 8, .* or --block must")


LINE = "the cat saw the dog and the dog saw a naïve cat , but the bird saw no dog in the tree that the cat saw"
UNITS = {"words": {}, "sub-words": {"subwords": 9}, "characters": {"tokenizer": "characters"}}
UNITS["bytes"] = {"tokenizer": "bytes"}
BODIES = {
    "Transformer": None,
    "LSTM": lambda: LSTMDecoder(1, 6, 8),
    "QRNN": lambda: QRNNDecoder(1, 6, 8, window=2),
    "NPLM": lambda: NPLMDecoder(2, 12, num_local=3),
}
CASES = [("words", body) for body in BODIES] + [(unit, "Transformer") for unit in list(UNITS)[1:]] + [("bytes", "LSTM")]
if BACKEND == "jax":  # which compiles every program of every case
    CASES = [("words", "Transformer"), ("bytes", "LSTM")]
PLACE = "<!-- one text, one number: tests/trainers/test_one_text.py -->"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_splits(tmp_path_factory.mktemp("line"), f"{LINE}\n")


def write_case(folder, text, unit, body):
    corpus = prepare(text, folder / "corpus", min_count=1, **UNITS[unit])
    model = language_model(len(corpus.vocabulary))
    if BODIES[body]:
        model = randomize(LanguageModel(model.word_input, BODIES[body](), model.word_output))
    facts = corpus.metadata
    how = {"flags": f"--data_dir={folder}/corpus\n--length={LENGTH}\n", "merges": corpus.subwords()}
    return write_run(folder / "run", model, corpus.vocabulary, facts["tokenizer"], facts["unit"], **how).path


def of_hub(folder, record):
    task = AdaptiveCausalLM.from_run(folder)
    ids = np.append(EOS, task.preprocessor.tokenizer.codec.encode(record["tokens"])).astype("int32")[None]
    nll = task.score(ids[:, :-1], scoring_mode="loss", target_ids=ids[:, 1:])
    return float(np.exp(keras.ops.convert_to_numpy(nll).sum(dtype="float64") / record["words"]))


def of_saved_model(lm):
    graph = GraphText(lm.vocabulary, lm.codec.tokenizer, lm.codec.subwords)
    served = ServedModel(with_output_for_inference(lm.trained), graph, max_length=500).functions()["score"]
    record = SavedTextModel(SimpleNamespace(score=served)).score(LINE)
    assert record["reading"] == lm.score(LINE)["reading"]
    return record["perplexity"]


@pytest.mark.parametrize("unit, body", CASES)
def test_one_text_has_one_number(text, tmp_path, unit, body):
    """`docs/text_api.md` shows these numbers; a message shows the row that it must have."""
    folder = write_case(tmp_path, text, unit, body)
    lm = keras_adaptive.load(folder)
    record = lm.score(LINE)
    result = evaluated(folder)
    (score,) = scored(folder, f"{LINE}\n")
    page = summed(list(ServedRun(folder, "run").score(LINE, math.inf)))
    assert result["reading"].removesuffix(", with the state carried") == score["reading"] == record["reading"]
    assert page["lines"][0]["reading"] == record["reading"]
    found = {
        "evaluate": result["perplexity"],
        "score": score["perplexity"],
        "Python": lm.perplexity(LINE),
        "page": page["perplexity"],
        "hub": of_hub(folder, record),
    }
    if BACKEND == "tensorflow":
        found["SavedModel"] = of_saved_model(lm)
    assert found == pytest.approx(dict.fromkeys(found, record["perplexity"]), rel=1e-4)
    numbers = " | ".join([f"{record['perplexity']:.2f}"] * 6)
    table = (ROOT / "docs" / "text_api.md").read_text(encoding="utf-8").partition(PLACE)[2]
    start = f"| {unit} | {body} | {record['reading']} | "
    row = next((line for line in table.splitlines() if line.startswith(start)), "no such row")
    shown = [float(cell) for cell in row.removeprefix(start).strip("| ").split(" | ")] if row.startswith(start) else []
    assert shown == pytest.approx([record["perplexity"]] * 6, abs=0.011, rel=1e-4), f"{start}{numbers} |"
