"""The programs end to end on sub-words: figures are per word, texts are whole words."""

import io
import json
import math
import shutil

import keras
import numpy as np
import pytest

from keras_adaptive.data import UNK, detokenize_subwords, load_corpus, prepare
from tests.support.programs import call
from tests.support.quickstart import SHRUNK
from trainers import evaluate, generate, score, train
from trainers.experiments.run_folder import RunFolder

pytestmark = [pytest.mark.usefixtures("models_read_once"), pytest.mark.once]
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
    blocks, lines = evaluated(subword_run), evaluated(subword_run, "--blocks_of=lines", "--context=6")
    assert [blocks[name] for name in ("words", "tokens")] == [lines[name] for name in ("words", "tokens")]
    assert blocks["loss"] != lines["loss"]


def test_score_shows_pieces_and_counts_words(subword_run, monkeypatch, capsys):
    lines = "don't <unk> naïve 日\n\n".encode()
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(lines))
    call(score, f"--run_dir={subword_run}", "--format=json")
    first, blank = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (blank["tokens"], blank["words"]) == (["</s>"], 1)
    assert first["words"] == 5 < len(first["tokens"]) and first["unknown"] == []
    assert "".join(detokenize_subwords(first["tokens"])) == " don't <unk> naïve 日\n"
    assert first["perplexity"] == pytest.approx(math.exp(-first["log_prob"] / 5), rel=1e-9)
    vocabulary, model = RunFolder(subword_run).codec.vocabulary, RunFolder(subword_run).model()
    ids = vocabulary.encode(first["tokens"])
    inputs = np.append(2, ids[:-1])
    for place, id in enumerate(ids):  # in windows of 8, 4 of them context
        log_probs = model.log_probs(inputs[None, max(place // 4 * 4 - 4, 0) : place + 1])[0, -1]
        assert first["log_probs"][place] == pytest.approx(log_probs[id], abs=1e-5)
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(lines))
    call(score, f"--run_dir={subword_run}")
    assert f"5 words in {len(ids)} tokens, perplexity {first['perplexity']:.2f}" in capsys.readouterr().out


def test_generate_joins_pieces(subword_run, capsys):
    arguments = [f"--run_dir={subword_run}", "--prompt=naïve  don't", "--length=40", "--seed=3"]
    call(generate, *arguments)
    captured = capsys.readouterr()
    assert captured.err == "" and captured.out.startswith("naïve  don't") and "Ġ" not in captured.out
    run = RunFolder(subword_run)
    prompt = np.append(2, run.codec.vocabulary.encode(run.codec.tokenize("naïve don't")))[None]
    stream = run.model().stream(prompt, 40, 1.0, None, 3, forbid=[UNK])
    pieces = run.codec.vocabulary.decode([int(ids[0]) for ids in stream])
    assert captured.out == "naïve  don't" + "".join(run.codec.detokenize(pieces)) + "\n"


def test_a_run_of_sub_words_continues(subword_run, subword_corpus, capsys):
    call(train, *SHRUNK, f"--data_dir={subword_corpus}", f"--run_dir={subword_run}")
    assert "Continuing" in capsys.readouterr().out


@pytest.mark.parametrize("subwords", [0, 11])
def test_a_corpus_of_another_bpe_model_is_refused(subword_run, subword_text, tmp_path, subwords):
    prepare(subword_text, tmp_path / "corpus", subwords=subwords)
    with pytest.raises(ValueError, match="has other sub-words than .*/corpus"):
        call(evaluate, f"--run_dir={subword_run}", f"--data_dir={tmp_path}/corpus")


def test_a_run_does_not_continue_with_another_bpe_model(subword_run, subword_text, tmp_path):
    prepare(subword_text, tmp_path / "corpus", subwords=11)
    with pytest.raises(ValueError, match="has other sub-words than .*/corpus"):
        call(train, *SHRUNK, f"--data_dir={tmp_path}/corpus", f"--run_dir={subword_run}")


def test_merges_of_another_corpus_in_a_run_folder_are_refused(subword_run, tmp_path):
    run_dir = shutil.copytree(subword_run, tmp_path / "run")
    merges = (run_dir / "merges.txt").read_text(encoding="utf-8").splitlines()
    (run_dir / "merges.txt").write_text("\n".join(merges[:-1]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="merges.txt holds the merges of another corpus"):
        call(generate, f"--run_dir={run_dir}")
