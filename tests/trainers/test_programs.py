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

from keras_adaptive.data import join_pieces, load_corpus, prepare
from tests.support.programs import ask, call
from tests.support.text import write_zipf
from trainers import evaluate, generate, score, train
from trainers.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
SHRUNK = [
    f"--flagfile={ROOT}/configs/quickstart.flags",
    *("--dim=16", "--num_heads=2", "--ffn_dim=32", "--num_blocks=1", "--cutoffs=30"),
    *("--length=8", "--batch_size=4", "--updates=6", "--evaluate_every=3", "--log_every=2", "--warmup=0"),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = write_zipf(tmp_path_factory.mktemp("text"), words=80)
    prepare(folder, folder / "corpus", min_count=1)
    return folder / "corpus"


@pytest.fixture(scope="module", autouse=True)
def models_read_once():
    """Programs that read the same file get the same model, and with it the functions that are compiled already."""
    load, models = RunFolder.model, {}

    def model(self, name="best"):
        file = self.model_file(name)
        key = file, file.stat().st_mtime_ns
        if key not in models:
            models[key] = load(self, name)
        return models[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunFolder, "model", model)
        yield


WORDS = ["the", "them", "there", "cat's", "don't", "naïve", "12", "...", "<unk>", "other", "mother"]


@pytest.fixture(scope="module")
def subword_text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("subword_text")
    random, shares = np.random.default_rng(2), 1 / np.arange(1, len(WORDS) + 1) ** 2
    for split, lines in (("train", 60), ("valid", 12), ("test", 12)):
        text = "".join(" ".join(random.choice(WORDS, 7, p=shares / shares.sum())) + "\n" for _ in range(lines))
        (folder / f"{split}.txt").write_text(text + ("" if split == "train" else "zebra\n\n"), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def subword_corpus(subword_text):
    return prepare(subword_text, subword_text / "corpus", min_count=2, subwords=12).data_dir


@pytest.fixture(scope="module")
def subword_run(subword_corpus, tmp_path_factory):
    keras.utils.set_random_seed(1)
    run_dir = tmp_path_factory.mktemp("runs") / "subwords"
    call(train, *SHRUNK, f"--data_dir={subword_corpus}", f"--run_dir={run_dir}")
    return run_dir


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    keras.utils.set_random_seed(1)
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    call(train, *SHRUNK, f"--data_dir={corpus}", f"--run_dir={run_dir}")
    return run_dir


def records(run_dir):
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def test_training_leaves_everything_that_follows_needs(trained):
    names = {path.name for path in trained.iterdir()}
    assert {"flags.txt", "vocabulary.txt", "corpus.json", "log.jsonl", "best.keras", "last.keras"} <= names
    assert any((trained / "tensorboard").iterdir())


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
    for fact in (f"{result['perplexity']:.2f}", "per word", "96 tokens counted", "blocks of 8 tokens", "context 0"):
        assert fact in printed
    assert sum(row["tokens"] for row in result["by_frequency"]) == len(tokens)


def test_context_windows_score_the_same_tokens(trained, capsys):
    call(evaluate, f"--run_dir={trained}", "--split=test", "--block=10", "--context=6")
    result = json.loads((trained / "evaluation_test.json").read_text())
    assert (result["tokens"], result["context"], result["blocks_of"]) == (12 * 8, 6, "whole lines")


def test_score_gives_the_log_probability_of_each_token(trained, monkeypatch, capsys):
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(b"w1 w2 qqq\n\n"))
    call(score, f"--run_dir={trained}", "--format=json")
    first, blank = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["tokens"] == ["w1", "w2", "qqq", "</s>"] and first["unknown"] == ["qqq"]
    assert blank["tokens"] == ["</s>"]
    vocabulary, model = RunFolder(trained).vocabulary(), RunFolder(trained).model()
    ids = np.append(vocabulary.encode(["w1", "w2", "qqq"]), 2)
    log_probs = model.log_probs(np.append(2, ids[:-1])[None])[0]
    np.testing.assert_allclose(first["log_probs"], log_probs[np.arange(4), ids], atol=1e-5)
    assert first["perplexity"] == pytest.approx(math.exp(-np.mean(first["log_probs"])), rel=1e-5)


def test_score_table_names_the_unknown_word(trained, monkeypatch, capsys):
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(b"w1 qqq\n"))
    call(score, f"--run_dir={trained}")
    printed = capsys.readouterr().out
    assert "qqq  (scored as <unk>)" in printed and "3 tokens, perplexity" in printed


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
        assert alone["bands"] == [int(id >= 30) for id in RunFolder(trained).vocabulary().encode(alone["tokens"])]


def test_score_answers_each_line_before_the_next_one_comes():
    asked = queue.Queue()
    answers = score.as_they_come(iter(asked.get, None), 16)
    for line in (["a"], ["b"]):
        asked.put(line)
        assert next(answers) == [line]
    asked.put(None)
    assert list(answers) == []


def test_generate_continues_the_prompts_of_a_file(trained, tmp_path, capsys):
    (tmp_path / "prompts.txt").write_text("w1\n\nw2 w3 w1\n")
    options = [f"--run_dir={trained}", "--length=4", "--temperature=0"]
    call(generate, *options, f"--input={tmp_path}/prompts.txt", "--batch_size=2")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["prompt"].strip() for one in found] == ["w1", "", "w2 w3 w1"]
    for one in found:
        call(generate, *options, f"--prompt={one['prompt']}")
        assert capsys.readouterr().out.strip() == (one["prompt"] + one["text"]).strip()


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

    assert "SIGTERM: stopped behind update 1; the same training goes on from" in stop_at("on_train_batch_end", 0).err
    printed = stop_at("on_test_batch_begin", 0)
    assert "update 1 of 6, epoch 1 of 2" in printed.out and "stopped behind update 3" in printed.err
    call(train, *arguments)
    assert "update 3 of 6, epoch 1 of 2" in capsys.readouterr().out
    checkpoints = [folder / "checkpoints" / "update_0000000006.npz" for folder in (tmp_path / "run", trained)]
    with np.load(checkpoints[0]) as stopped, np.load(checkpoints[1]) as whole:
        assert stopped.files == whole.files
        for name in set(stopped.files) - {"state"}:
            np.testing.assert_array_equal(stopped[name], whole[name])
    times = ("seconds", "tokens_per_second")
    logs = [[{**one, **dict.fromkeys(times)} for one in records(run)] for run in (tmp_path / "run", trained)]
    assert logs[0] == logs[1] and len(logs[0]) == 5


def test_two_trainings_in_one_folder(trained, corpus):
    before = {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    code = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(1, flush=True); input()"
    holder = [sys.executable, "-c", code, str(trained / "lock")]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(ValueError, match="Another training is at work in"):
            call(train, *SHRUNK, f"--data_dir={corpus}", f"--run_dir={trained}")
        other.kill()  # with the process its lock is gone
    call(train, *SHRUNK, f"--data_dir={corpus}", f"--run_dir={trained}")
    assert {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()} == before


def test_a_run_without_checkpoints_is_refused(trained, corpus, tmp_path):
    run_dir = shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(run_dir / "checkpoints")
    with pytest.raises(ValueError, match="has no checkpoints to go on from"):
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


def evaluated(run_dir, *arguments):
    call(evaluate, f"--run_dir={run_dir}", "--block=8", *arguments)
    return json.loads((run_dir / "evaluation_valid.json").read_text())


def test_the_perplexity_of_sub_words_is_per_word(subword_run, subword_corpus, subword_text, capsys):
    result = evaluated(subword_run)
    text = (subword_text / "valid.txt").read_text(encoding="utf-8")
    words = text.replace("\n", " </s> ").split()
    corpus = load_corpus(subword_corpus)
    tokens = np.asarray(corpus.tokens("valid"), "int32")
    assert (result["words"], result["tokens"]) == (len(words), len(tokens)) and len(tokens) > len(words) == 12 * 8 + 3
    stream = np.append(2, np.append(tokens, np.full(-len(tokens) % 8, 1))).astype("int32")  # blocks, padded
    nll = RunFolder(subword_run).model().nll(stream[:-1].reshape(-1, 8), stream[1:].reshape(-1, 8))
    total = np.float64(nll.ravel()[: len(tokens)]).sum()
    assert result["perplexity"] == pytest.approx(math.exp(total / len(words)), rel=1e-4)
    assert result["loss"] == pytest.approx(total / len(words), rel=1e-5)
    assert result["unit"] == "word (of sub-words)"
    printed = capsys.readouterr().out
    assert f"per word (of sub-words) ({result['loss']:.4f} nats): 99 words in {len(tokens)} tokens counted" in printed


def test_the_words_of_sub_words_are_binned_as_those_of_a_run_of_words(subword_run, subword_corpus, subword_text):
    bins = evaluated(subword_run)["by_frequency"]
    words = prepare(subword_text, subword_text / "words", min_count=2)
    counts = words.vocabulary.counts[words.tokens("valid")]
    ranges = ((1, 10), (10, 100), (100, 1000))
    expected = [(low, int(((counts >= low) & (counts < high)).sum())) for low, high in ranges]
    assert [(one["low"], one["tokens"]) for one in bins] == expected
    assert sum(one["tokens"] for one in bins) == len(counts)
    total = sum(one["tokens"] * one["nll"] for one in bins)
    assert total == pytest.approx(evaluated(subword_run)["loss"] * len(counts), rel=1e-9)


def test_context_windows_score_the_same_words(subword_run):
    blocks, lines = evaluated(subword_run), evaluated(subword_run, "--context=6")
    assert [blocks[name] for name in ("words", "tokens")] == [lines[name] for name in ("words", "tokens")]
    assert blocks["loss"] != lines["loss"]


def test_score_shows_pieces_and_counts_words(subword_run, monkeypatch, capsys):
    lines = "don't <unk> naïve 日\n\n".encode()
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(lines))
    call(score, f"--run_dir={subword_run}", "--format=json")
    first, blank = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (blank["tokens"], blank["words"]) == (["</s>"], 1)
    assert first["words"] == 5 < len(first["tokens"]) and first["unknown"] == []
    assert "".join(join_pieces(first["tokens"])) == " don't <unk> naïve 日\n"
    assert first["perplexity"] == pytest.approx(math.exp(-first["log_prob"] / 5), rel=1e-9)
    vocabulary, model = RunFolder(subword_run).vocabulary(), RunFolder(subword_run).model()
    ids = vocabulary.encode(first["tokens"])
    log_probs = model.log_probs(np.append(2, ids[:-1])[None])[0]
    np.testing.assert_allclose(first["log_probs"], log_probs[np.arange(len(ids)), ids], atol=1e-5)
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(lines))
    call(score, f"--run_dir={subword_run}")
    assert f"5 words in {len(ids)} tokens, perplexity {first['perplexity']:.2f}" in capsys.readouterr().out


def test_generate_joins_pieces(subword_run, capsys):
    arguments = [f"--run_dir={subword_run}", "--prompt=naïve  don't", "--length=40", "--seed=3"]
    call(generate, *arguments)
    captured = capsys.readouterr()
    assert captured.err == "" and captured.out.startswith("naïve don't") and "Ġ" not in captured.out
    run = RunFolder(subword_run)
    prompt = np.append(2, run.vocabulary().encode(run.tokenize()("naïve don't")))[None]
    pieces = run.vocabulary().decode([int(ids[0]) for ids in run.model().stream(prompt, 40, 1.0, None, 3)])
    assert captured.out == "naïve don't" + "".join(join_pieces(pieces)) + "\n"


def test_a_run_of_sub_words_continues(subword_run, subword_corpus, capsys):
    call(train, *SHRUNK, f"--data_dir={subword_corpus}", f"--run_dir={subword_run}")
    assert "Continuing" in capsys.readouterr().out


@pytest.mark.parametrize("subwords", [0, 11])
def test_a_corpus_of_another_bpe_model_is_refused(subword_run, subword_text, tmp_path, subwords):
    prepare(subword_text, tmp_path / "corpus", subwords=subwords)
    with pytest.raises(ValueError, match="is a run of another BPE model than that of .*/corpus"):
        call(evaluate, f"--run_dir={subword_run}", f"--data_dir={tmp_path}/corpus")


def test_a_run_does_not_continue_with_another_bpe_model(subword_run, subword_text, tmp_path):
    prepare(subword_text, tmp_path / "corpus", subwords=11)
    with pytest.raises(ValueError, match="is a run of another BPE model than that of .*/corpus"):
        call(train, *SHRUNK, f"--data_dir={tmp_path}/corpus", f"--run_dir={subword_run}")


def test_merges_of_another_corpus_in_a_run_folder_are_refused(subword_run, tmp_path):
    run_dir = shutil.copytree(subword_run, tmp_path / "run")
    merges = (run_dir / "merges.txt").read_text(encoding="utf-8").splitlines()
    (run_dir / "merges.txt").write_text("\n".join(merges[:-1]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="merges.txt holds the merges of another corpus"):
        call(generate, f"--run_dir={run_dir}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cutoffs=40,20"], "strictly increasing"),
        (["--cutoffs=20,4000"], "below `vocabulary_size`"),
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
    monkeypatch.setattr("keras_adaptive.layers.inputs.char_cnn.SLOTS", (5,))  # to compile less
    run_dir = tmp_path / "run"
    parts = ["--input=char_cnn", "--notie_words", "--filters=8,12,16", "--batching=sentences", "--micro_batches=2"]
    parts += ["--updates=3", "--evaluate_every=3"]
    call(train, *SHRUNK, *parts, f"--data_dir={corpus}", f"--run_dir={run_dir}")
    capsys.readouterr()
    call(evaluate, f"--run_dir={run_dir}")
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
    program = "from trainers import command_line; command_line.run(print, lambda: None)"  # which needs no Keras
    unknown = run("-c", program, "--no_such_flag=1")
    assert unknown.returncode == 1 and "no_such_flag" in unknown.stderr and "Traceback" not in unknown.stderr
