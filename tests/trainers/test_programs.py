"""The programs end to end: the real quick-start configuration, shrunk, from a prepared corpus to generated text."""

import importlib.util
import json
import math

import numpy as np
import pytest

from keras_adaptive.data import load_corpus, prepare
from tests.support import programs
from tests.support.backends import BACKEND, use_graph_optimizer
from tests.support.programs import ask, call
from tests.support.quickstart import SHRUNK
from tests.support.runs import assert_same_runs, evaluated, records, scored, stopped
from trainers import analyze, generate, train
from trainers.experiments.experiment import Experiment
from trainers.experiments.run_folder import RunFolder

pytestmark = [pytest.mark.usefixtures("models_read_once"), pytest.mark.graph_optimizer]


def test_training_leaves_everything_that_follows_needs(trained):
    names = {path.name for path in trained.iterdir()}
    assert {"flags.txt", "vocabulary.txt", "corpus.json", "log.jsonl", "best.keras", "last.keras"} <= names
    assert any((trained / "tensorboard").iterdir())


@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's graphs alone change the order of sums")
def test_a_new_model_keeps_the_order_of_sums_in_graphs(trained):
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": True})
    sizes = ["--dim=16", "--num_heads=2", "--ffn_dim=32", "--num_blocks=1", "--cutoffs="]
    train.new_model(Experiment.of_arguments(sizes), RunFolder(trained).codec.vocabulary, None)
    assert tf.config.optimizer.get_experimental_options()["arithmetic_optimization"] is False


def test_log_has_every_update_with_its_rate(trained):
    lines = records(trained)
    trains = [line for line in lines if "loss" in line]
    assert [line["update"] for line in trains] == [2, 4, 6]
    # Cosine from 1 over 6 updates: update t uses the rate of t − 1 updates done.
    expected = [1e-5 + (1 - 1e-5) * (1 + math.cos(math.pi * (t - 1) / 6)) / 2 for t in (2, 4, 6)]
    np.testing.assert_allclose([line["learning_rate"] for line in trains], expected, rtol=1e-6)
    assert all(line["gradient_norm"] > 0 and line["loss"] > 0 for line in trains)
    assert [line["update"] for line in lines if "val_loss" in line] == [3, 6]


def test_evaluation_counts_every_token_and_agrees_with_the_model(trained, corpus, capsys):
    result, printed = evaluated(trained, "--block=8", "--batch_size=3"), capsys.readouterr().out
    tokens = np.asarray(load_corpus(corpus).tokens("valid"), "int32")
    assert result["tokens"] == len(tokens) == 12 * 8
    model = RunFolder(trained).model()
    stream = np.append(2, tokens)
    nll = model.nll(stream[:-1].reshape(-1, 8), tokens.reshape(-1, 8))
    assert result["loss"] == pytest.approx(nll.mean(), rel=1e-5)
    assert result["perplexity"] == pytest.approx(math.exp(nll.mean()), rel=1e-4)
    reading = "in windows of 8 tokens without context"
    assert all(fact in printed for fact in (f"{result['perplexity']:.2f}", "per word", "96 tokens counted", reading))
    assert sum(row["tokens"] for row in result["by_frequency"]) == len(tokens)


def test_score_gives_the_log_probability_of_each_token(trained):
    first, blank = scored(trained, "w1 w2 qqq\n\n")
    assert first["tokens"] == ["w1", "w2", "qqq", "</s>"] and first["unknown"] == ["qqq"]
    assert blank["tokens"] == ["</s>"]
    vocabulary, model = RunFolder(trained).codec.vocabulary, RunFolder(trained).model()
    ids = np.append(vocabulary.encode(["w1", "w2", "qqq"]), 2)
    log_probs = model.log_probs(np.append(2, ids[:-1])[None])[0]
    np.testing.assert_allclose(first["log_probs"], log_probs[np.arange(4), ids], atol=1e-5)
    assert first["perplexity"] == pytest.approx(math.exp(-np.mean(first["log_probs"])), rel=1e-5)


def test_generate_streams_one_text_per_seed(trained, capsys):
    texts = []
    for seed in (1, 1, 2):
        call(generate, f"--run_dir={trained}", "--prompt=w1 qqq", "--length=12", f"--seed={seed}", "--temperature=1")
        captured = capsys.readouterr()
        texts.append(captured.out)
        assert "Not in the vocabulary, read as <unk>: qqq" in captured.err
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("w1 qqq")


def test_a_run_stopped_in_an_epoch_and_in_a_validation_ends_the_same(trained, corpus, tmp_path, capsys):
    """Compares every bit, with a log that holds each update once."""
    arguments = [*SHRUNK, f"--data_dir={corpus}", f"--run_dir={tmp_path}/run"]
    with stopped("on_train_batch_end", 0):
        call(train, *arguments)
    assert "SIGTERM: stopped after update 1; the same training resumes from" in capsys.readouterr().err
    with stopped("on_test_batch_begin", 0):
        call(train, *arguments)
    printed = capsys.readouterr()
    assert "update 1 of 6, epoch 1 of 2" in printed.out and "stopped after update 3" in printed.err
    call(train, *arguments)
    assert "update 3 of 6, epoch 1 of 2" in capsys.readouterr().out
    assert_same_runs(tmp_path / "run", trained)
    assert len(records(trained)) == 5


def test_words_enter_in_sentences_by_their_bytes_and_unknown_words_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("keras_adaptive.layers.inputs.char_cnn.SLOTS", ())  # to compile less
    use_graph_optimizer(False)  # so too
    run_dir = tmp_path / "run"
    parts = ["--input=char_cnn", "--notie_words", "--filters=8,12,16", "--batching=sentences", "--micro_batches=2"]
    parts += ["--updates=3", "--evaluate_every=3"]
    (tmp_path / "text").mkdir()
    for number, split in enumerate(("train", "valid", "test")):
        lines = [" ".join(f"w{(7 * line + word) % 50}" for word in range(1 + line % 7)) for line in range(90 + number)]
        (tmp_path / f"text/{split}.txt").write_text("\n".join(lines) + "\n")
    corpus = prepare(tmp_path / "text", tmp_path / "data", min_count=1)
    call(train, *SHRUNK, *parts, f"--data_dir={tmp_path}/data", f"--run_dir={run_dir}")
    capsys.readouterr()
    result = evaluated(run_dir)
    loss = max(one.get("val_loss", 0) for one in records(run_dir))
    counted = f"{len(corpus.tokens('valid')):,} tokens counted, read line by line, without context"
    assert counted in capsys.readouterr().out
    assert result["loss"] == pytest.approx(loss, abs=1e-5)
    assert abs(evaluated(run_dir, "--context=0")["loss"] - loss) > 1e-4  # several lines in a block
    call(analyze, "--contexts=0", f"--output_dir={tmp_path}/analysis", run_dir)
    (analysis,) = json.loads((tmp_path / "analysis/analysis.json").read_text())["runs"]
    assert analysis["loss"]["valid"] == pytest.approx(loss, abs=1e-5)
    closed, opened = (
        [one["log_probs"] for one in scored(run_dir, "w1 dog w2\nw1 cat w2\nw1 w2\n", *options)]
        for options in ((), ("--open_vocabulary",))
    )
    assert closed[0] == closed[1]
    assert opened[0][:2] == pytest.approx(closed[0][:2], abs=1e-5)  # before the word is read
    assert abs(opened[0][2] - opened[1][2]) > 1e-6  # after "dog" and after "cat"
    assert opened[2] == pytest.approx(closed[2], abs=1e-5)
    call(generate, f"--run_dir={run_dir}", "--prompt=w1 dog", "--length=3", "--seed=1", "--open_vocabulary")
    assert "by their bytes: dog" in capsys.readouterr().err


@pytest.mark.skipif(BACKEND != "jax", reason="TensorFlow exports every run; JAX shows that of another backend")
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@pytest.mark.processes
def test_an_exported_run_answers_as_the_programs_do(trained, tmp_path):
    done = programs.run("-m", "trainers.export", f"--run_dir={trained}", f"--export_dir={tmp_path}/1")
    assert done.returncode == 0, done.stderr
    assert f"parameters in float32 to {tmp_path}/1" in done.stdout
    lines = ["w1 w2 qqq", "", "w3\u00a0w1"]
    (answer,) = ask(tmp_path / "1", [("score", {"text": lines})])
    for row, live in enumerate(scored(trained, "\n".join([*lines, ""]))):
        served = {name: values[row] for name, values in answer["outputs"].items()}
        count = len(live["tokens"])
        assert served["tokens"][:count] == live["tokens"] and served["words"] == live["words"]
        assert served["log_probs"][:count] == pytest.approx(live["log_probs"], abs=1e-5)
        assert served["perplexity"] == pytest.approx(live["perplexity"], rel=1e-4)
