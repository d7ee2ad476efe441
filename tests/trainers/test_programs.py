"""The programs end to end: the real quick-start configuration, shrunk, from a prepared corpus to generated text."""

import importlib.util
import io
import json
import math
import os
import queue
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_adaptive.data import load_corpus, prepare
from keras_adaptive.evaluation import word_losses
from tests.support.backends import BACKEND, use_graph_optimizer
from tests.support.programs import ask, call
from tests.support.quickstart import SHRUNK
from tests.support.text import write_zipf
from trainers import evaluate, generate, score, train
from trainers.experiments.experiment import Experiment
from trainers.experiments.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("models_read_once")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = write_zipf(tmp_path_factory.mktemp("text"), words=80)
    prepare(folder, folder / "corpus", min_count=1)
    return folder / "corpus"


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    keras.utils.set_random_seed(1)
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    call(train, *SHRUNK, "--tensorboard", f"--data_dir={corpus}", f"--run_dir={run_dir}")
    return run_dir


def records(run_dir):
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


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
    call(evaluate, f"--run_dir={trained}", "--split=valid", "--block=8", "--batch_size=3")
    printed = capsys.readouterr().out
    result = json.loads((trained / "evaluation_valid.json").read_text())
    tokens = np.asarray(load_corpus(corpus).tokens("valid"), "int32")
    assert result["tokens"] == len(tokens) == 12 * 8
    model = RunFolder(trained).model()
    stream = np.append(2, tokens)
    nll = model.nll(stream[:-1].reshape(-1, 8), tokens.reshape(-1, 8))
    assert result["loss"] == pytest.approx(nll.mean(), rel=1e-5)
    assert result["perplexity"] == pytest.approx(math.exp(nll.mean()), rel=1e-4)
    for fact in (
        f"{result['perplexity']:.2f}",
        "per word",
        "96 tokens counted",
        "in windows of 8 tokens without context",
    ):
        assert fact in printed
    assert sum(row["tokens"] for row in result["by_frequency"]) == len(tokens)


@pytest.mark.parametrize("blocks_of, name", [("lines", "tokens in whole lines"), ("tokens", "tokens")])
def test_context_windows_score_the_same_tokens(trained, corpus, blocks_of, name):
    losses = {}
    for context in (0, 6):
        arguments = ["--split=test", f"--blocks_of={blocks_of}", "--block=10", f"--context={context}"]
        call(evaluate, f"--run_dir={trained}", *arguments)
        result = json.loads((trained / "evaluation_test.json").read_text())
        assert (result["tokens"], result["context"], result["blocks_of"]) == (12 * 8, context, name)
        losses[context] = result["loss"]
    assert losses[0] != losses[6]
    model, data = RunFolder(trained).model(), load_corpus(corpus)
    nll, _ = word_losses(model, data, "test", 10, 6, 5, by_lines=blocks_of == "lines")
    assert losses[6] == pytest.approx(nll.mean(), rel=1e-5)


def test_score_gives_the_log_probability_of_each_token(trained, monkeypatch, capsys):
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(b"w1 w2 qqq\n\n"))
    call(score, f"--run_dir={trained}", "--format=json")
    first, blank = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["tokens"] == ["w1", "w2", "qqq", "</s>"] and first["unknown"] == ["qqq"]
    assert blank["tokens"] == ["</s>"]
    vocabulary, model = RunFolder(trained).codec.vocabulary, RunFolder(trained).model()
    ids = np.append(vocabulary.encode(["w1", "w2", "qqq"]), 2)
    log_probs = model.log_probs(np.append(2, ids[:-1])[None])[0]
    np.testing.assert_allclose(first["log_probs"], log_probs[np.arange(4), ids], atol=1e-5)
    assert first["perplexity"] == pytest.approx(math.exp(-np.mean(first["log_probs"])), rel=1e-5)


def test_score_table_names_the_unknown_word(trained, monkeypatch, capsys):
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(b"w1 qqq\n"))
    call(score, f"--run_dir={trained}")
    printed = capsys.readouterr().out
    assert "qqq  (scored as <unk>)" in printed and "3 tokens, perplexity" in printed


def test_score_shows_alternatives_and_entropies(trained, tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("w1 w2 qqq\n")
    options = [f"--run_dir={trained}", f"--input={tmp_path}/lines.txt"]
    call(score, *options, "--format=json")
    plain = json.loads(capsys.readouterr().out)
    call(score, *options, "--format=json", "--alternatives=80")
    record = json.loads(capsys.readouterr().out)
    assert record["log_probs"] == pytest.approx(plain["log_probs"], abs=2e-5) and record["ranks"] == plain["ranks"]
    for entropy, best, rank, log_prob in zip(*(record[k] for k in ("entropies", "alternatives", "ranks", "log_probs"))):
        values = np.array([value for _, value in best])
        assert (
            len(best) == 80
            and (np.diff(values) <= 0).all()
            and values[rank - 1] == pytest.approx(math.exp(log_prob), abs=1e-5)
        )
        assert 0 < entropy < math.log(96)
    call(score, *options, "--alternatives=2")
    word, value = record["alternatives"][0][0]
    assert f"(entropy {record['entropies'][0]:.4f}; {word} {value:.4f}, " in capsys.readouterr().out
    with pytest.raises(ValueError, match="--alternatives must be at most .* Received: --alternatives=999"):
        call(score, *options, "--alternatives=999")


def test_score_works_on_lines_together_as_alone(trained, tmp_path, capsys):
    lines = ["w1 w2", "", " ".join(["w3 w1"] * 20), "w2"]
    for name, some in (("a.txt", lines[:3]), ("b.txt", lines[3:])):
        (tmp_path / name).write_text("\n".join(some) + "\n")
    files = [f"--input={tmp_path}/a.txt", f"--input={tmp_path}/b.txt"]
    results = []
    for size in (1, 3):
        call(score, f"--run_dir={trained}", "--format=json", *files, f"--batch_size={size}")
        results.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    for line, alone, together in zip(lines, *results, strict=True):
        assert alone["tokens"] == together["tokens"] == [*line.split(), "</s>"]
        assert alone["log_probs"] == pytest.approx(together["log_probs"], abs=2e-5)
        assert alone["ranks"] == together["ranks"] and min(alone["ranks"]) >= 1
        assert alone["bands"] == [int(id >= 30) for id in RunFolder(trained).codec.vocabulary.encode(alone["tokens"])]


def test_score_answers_each_line_before_the_next_one_comes():
    asked = queue.Queue()
    answers = score.as_they_come(iter(asked.get, None), 16)
    for line in (["a"], ["b"]):
        asked.put(line)
        assert next(answers) == [line]
    asked.put(None)
    assert list(answers) == []


def test_generate_continues_the_prompts_of_a_file(trained, tmp_path, capsys):
    (tmp_path / "prompts.txt").write_text("\ufeffw1\n\nw2 w3 w1\n")  # with the mark of some editors
    options = [f"--run_dir={trained}", "--length=4", "--temperature=0"]
    call(generate, *options, f"--input={tmp_path}/prompts.txt", "--batch_size=2")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["prompt"].strip() for one in found] == ["w1", "", "w2 w3 w1"]
    for one in found:
        call(generate, *options, f"--prompt={one['prompt']}")
        assert capsys.readouterr().out.strip() == (one["prompt"] + one["text"]).strip()


def test_generate_ends_with_the_stop_word(trained, tmp_path, capsys):
    (tmp_path / "prompts.txt").write_text("w1\nw2 w3\n")
    options = [f"--run_dir={trained}", "--length=6", "--seed=3", "--top_p=0.9"]
    call(generate, *options, "--prompt=w1")
    text = capsys.readouterr().out.split()
    assert len(text) > 3
    call(generate, *options, "--prompt=w1", f"--stop={text[2]}")
    assert capsys.readouterr().out.split() == text[: text.index(text[2], 1) + 1]
    texts = []
    stop = []
    for _ in range(2):
        call(generate, *options, f"--input={tmp_path}/prompts.txt", *stop)
        texts.append([json.loads(line)["text"].split() for line in capsys.readouterr().out.splitlines()])
        word = texts[0][0][2]  # amid the first text
        stop = [f"--stop={word}"]
    for whole, one in zip(*texts, strict=True):
        assert one == whole[: whole.index(word) + 1 if word in whole else None]
    assert len(texts[1][0]) <= 3
    with pytest.raises(ValueError, match="--stop must be a word of the vocabulary, .* --stop=w1 w2"):
        call(generate, *options, "--stop=w1 w2")


def test_generate_streams_one_text_per_seed(trained, capsys):
    texts = []
    for seed in (1, 1, 2):
        call(generate, f"--run_dir={trained}", "--prompt=w1 qqq", "--length=12", f"--seed={seed}", "--temperature=1")
        captured = capsys.readouterr()
        texts.append(captured.out)
        assert "Not in the vocabulary, read as <unk>: qqq" in captured.err
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("w1 qqq")


def test_the_same_command_continues_and_other_flags_are_refused(trained, corpus, capsys):
    before = (trained / "last.keras").read_bytes()
    call(train, *SHRUNK, f"--data_dir={corpus}", f"--run_dir={trained}")
    assert f"Continuing {trained} from {trained}/checkpoints/update_0000000006.npz" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"other flags: --dim=32 \(was 16\)"):
        call(train, *SHRUNK, "--dim=32", f"--data_dir={corpus}", f"--run_dir={trained}")
    assert (trained / "last.keras").read_bytes() == before


def test_a_run_stopped_in_an_epoch_and_in_a_validation_ends_the_same(trained, corpus, tmp_path, monkeypatch, capsys):
    """Down to the last bit of everything, with a log that holds each update once."""
    arguments = [*SHRUNK, f"--data_dir={corpus}", f"--run_dir={tmp_path}/run"]
    fit = keras.Model.fit

    def stop_at(event, batch):
        stop = keras.callbacks.Callback()
        setattr(stop, event, lambda at, logs=None: os.kill(os.getpid(), signal.SIGTERM) if at == batch else None)
        monkeypatch.setattr(
            keras.Model, "fit", lambda self, *a, **k: fit(self, *a, **{**k, "callbacks": [stop, *k["callbacks"]]})
        )
        with pytest.raises(SystemExit) as stopped:
            call(train, *arguments)
        monkeypatch.setattr(keras.Model, "fit", fit)
        assert stopped.value.code == 143
        return capsys.readouterr()

    assert "SIGTERM: stopped after update 1; the same training resumes from" in stop_at("on_train_batch_end", 0).err
    printed = stop_at("on_test_batch_begin", 0)
    assert "update 1 of 6, epoch 1 of 2" in printed.out and "stopped after update 3" in printed.err
    call(train, *arguments)
    assert "update 3 of 6, epoch 1 of 2" in capsys.readouterr().out
    checkpoints = [folder / "checkpoints" / "update_0000000006.npz" for folder in (tmp_path / "run", trained)]
    with np.load(checkpoints[0]) as stopped, np.load(checkpoints[1]) as whole:
        assert stopped.files == whole.files
        for name in set(stopped.files) - {"state"}:
            np.testing.assert_array_equal(stopped[name], whole[name])
    times = ("seconds", "tokens_per_second", "hours_left")
    logs = [[{**one, **dict.fromkeys(times)} for one in records(run)] for run in (tmp_path / "run", trained)]
    assert logs[0] == logs[1] and len(logs[0]) == 5


def test_two_trainings_in_one_folder(trained, corpus):
    before = {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    code = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(1, flush=True); input()"
    holder = [sys.executable, "-c", code, str(trained / "lock")]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(ValueError, match="Another training uses"):
            call(train, *SHRUNK, f"--data_dir={corpus}", f"--run_dir={trained}")
        other.kill()  # with the process its lock is gone
    call(train, *SHRUNK, f"--data_dir={corpus}", f"--run_dir={trained}")
    assert {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()} == before


def test_a_run_without_checkpoints_is_refused(trained, corpus, tmp_path):
    run_dir = shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(run_dir / "checkpoints")
    with pytest.raises(ValueError, match="has no checkpoints to resume from"):
        call(train, *SHRUNK, f"--data_dir={corpus}", f"--run_dir={run_dir}")


def test_a_folder_that_cannot_be_written_is_named(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file/run"):
        call(train, *SHRUNK, f"--data_dir={corpus}", f"--run_dir={tmp_path}/file/run")


def test_a_corpus_of_another_vocabulary_is_refused(trained, tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(" ".join(f"other{n}" for n in range(80)) + "\n")
    prepare(tmp_path, tmp_path / "corpus", min_count=1)
    with pytest.raises(ValueError, match=r"another vocabulary than .* has 88 words .* as id 4 'other.* \(was 'w"):
        call(train, *SHRUNK, f"--data_dir={tmp_path}/corpus", f"--run_dir={trained}")
    with pytest.raises(ValueError, match="another vocabulary"):
        call(evaluate, f"--run_dir={trained}", f"--data_dir={tmp_path}/corpus")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cutoffs=40,20"], "strictly increasing"),
        (["--factor=32"], "dimension of at least 1"),
        (["--length=100000"], "number of tokens"),
        (["--updates=7"], "multiple of --evaluate_every"),
    ],
)
def test_bad_flags_leave_no_run_behind(corpus, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        call(train, *SHRUNK, *arguments, f"--data_dir={corpus}", f"--run_dir={tmp_path}/run")
    assert not (tmp_path / "run").exists()


def test_words_enter_in_sentences_by_their_bytes_and_unknown_words_too(corpus, tmp_path, monkeypatch, capsys):
    """Every line is as long as a block, so that a validation of sentences is an evaluation of blocks."""
    monkeypatch.setattr("keras_adaptive.layers.inputs.char_cnn.SLOTS", ())  # to compile less
    use_graph_optimizer(False)  # so too
    run_dir = tmp_path / "run"
    parts = ["--input=char_cnn", "--notie_words", "--filters=8,12,16", "--batching=sentences", "--micro_batches=2"]
    parts += ["--updates=3", "--evaluate_every=3"]
    call(train, *SHRUNK, *parts, f"--data_dir={corpus}", f"--run_dir={run_dir}")
    capsys.readouterr()
    call(evaluate, f"--run_dir={run_dir}", "--context=0")
    tokens, loss = load_corpus(corpus).tokens("valid"), max(one.get("val_loss", 0) for one in records(run_dir))
    assert f"{len(tokens):,} tokens counted" in capsys.readouterr().out
    assert json.loads((run_dir / "evaluation_valid.json").read_text())["loss"] == pytest.approx(loss, abs=1e-4)

    def lines(*options):
        monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(b"w1 dog w2\nw1 cat w2\nw1 w2\n"))
        call(score, f"--run_dir={run_dir}", "--format=json", *options)
        return [json.loads(line)["log_probs"] for line in capsys.readouterr().out.splitlines()]

    closed, opened = lines(), lines("--open_vocabulary")
    assert closed[0] == closed[1]
    assert opened[0][:2] == pytest.approx(closed[0][:2], abs=1e-5)  # before the word is read
    assert abs(opened[0][2] - opened[1][2]) > 1e-6  # behind "dog" and behind "cat"
    assert opened[2] == pytest.approx(closed[2], abs=1e-5)
    call(generate, f"--run_dir={run_dir}", "--prompt=w1 dog", "--length=3", "--seed=1", "--open_vocabulary")
    assert "by their bytes: dog" in capsys.readouterr().err


def test_an_open_vocabulary_needs_bytes(trained):
    with pytest.raises(ValueError, match="CharCNN"):
        call(generate, f"--run_dir={trained}", "--prompt=w1 dog", "--length=3", "--open_vocabulary")


@pytest.mark.skipif(BACKEND == "torch", reason="JAX shows that a run of another backend is exported")
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_an_exported_run_answers_as_the_programs_do(trained, tmp_path, monkeypatch, capsys):
    program = [sys.executable, "-m", "trainers.export", f"--run_dir={trained}", f"--export_dir={tmp_path}/1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"parameters in float32 to {tmp_path}/1" in done.stdout
    lines = ["w1 w2 qqq", "", "w3\u00a0w1"]
    (answer,) = ask(tmp_path / "1", [("score", {"text": lines})])
    text = "\n".join(lines).encode()
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(text + b"\n"))
    call(score, f"--run_dir={trained}", "--format=json")
    for row, line in enumerate(capsys.readouterr().out.splitlines()):
        live, served = json.loads(line), {name: values[row] for name, values in answer["outputs"].items()}
        count = len(live["tokens"])
        assert served["tokens"][:count] == live["tokens"] and served["words"] == live["words"]
        assert served["log_probs"][:count] == pytest.approx(live["log_probs"], abs=1e-5)
        assert served["perplexity"] == pytest.approx(live["perplexity"], rel=1e-4)


def test_summary_counts_without_training(corpus, capsys):
    call(train, *SHRUNK, "--summary", f"--data_dir={corpus}")
    printed = capsys.readouterr().out
    size, dim = len(load_corpus(corpus).vocabulary), 16
    tables = 30 * dim + (size - 30) * 4 + (16 + 4) * dim
    block = 4 * (dim * dim + dim) + (dim * 32 + 32) + (32 * dim + dim) + 4 * dim
    assert f"{tables:,}" in printed and f"{tables + block + dim:,}" in printed


def test_the_command_line_tells_of_bad_input_in_one_line(tmp_path):
    def run(*arguments):
        return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)

    missing = run("-m", "trainers.score", f"--run_dir={tmp_path}/nothing")
    assert missing.returncode == 1
    assert missing.stderr.splitlines()[-1].startswith(f"score: {tmp_path}/nothing holds no run")
    assert "Traceback" not in missing.stderr
    program = "from trainers.support import command_line; command_line.run(print, lambda: None)"  # which needs no Keras
    unknown = run("-c", program, "--no_such_flag=1")
    assert unknown.returncode == 1 and "no_such_flag" in unknown.stderr and "Traceback" not in unknown.stderr
