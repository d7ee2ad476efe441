"""A published checkpoint on its way to a perplexity, by the commands of docs/checkpoints.md."""

import contextlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import keras_adaptive
from keras_adaptive import fairseq
from keras_adaptive.data import TextCodec, Vocabulary, load_corpus
from keras_adaptive.data import prepare as prepare_text
from keras_adaptive.evaluation import word_losses
from tests.support.programs import call
from trainers import convert, evaluate, generate, prepare, score
from trainers.experiments.run_folder import RunFolder

pytestmark = pytest.mark.once

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tests" / "golden"
PUBLISHED = [f"--checkpoint={FILES}/transformer_lm_fairseq.pt", f"--dictionary={FILES}/dict.txt"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Lines of words of the dictionary and one that is unknown."""
    folder, random = tmp_path_factory.mktemp("text"), np.random.default_rng(1)
    words = Vocabulary.load(FILES / "dict.txt").words[4:204]
    for split in ("train", "valid", "test"):
        lines = [" ".join(["zebra", *random.choice(words, random.integers(0, 9))]) for _ in range(9)]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def corpus(text):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        call(prepare, f"--source={text}", PUBLISHED[1], f"--data_dir={text}/data")
    assert f"1,000 words in the vocabulary, from {FILES}/dict.txt" in printed.getvalue()
    return text / "data"


@pytest.fixture(scope="module")
def run_dir(corpus, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "published"
    call(convert, *PUBLISHED, f"--data_dir={corpus}", f"--run_dir={run_dir}")
    return run_dir


def test_the_perplexity_of_context_windows(run_dir, corpus, capsys):
    call(evaluate, f"--run_dir={run_dir}", "--split=test", "--blocks_of=lines", "--context=40", "--block=24")
    result = json.loads((run_dir / "evaluation_test.json").read_text())
    model, _ = fairseq.load_language_model(FILES / "transformer_lm_fairseq.pt", FILES / "dict.txt")
    tokens = np.asarray(load_corpus(corpus).tokens("test"), "int32")
    windows = word_losses(model, load_corpus(corpus), "test", 24, 40, 16, by_lines=True)[0]
    assert result["loss"] == pytest.approx(windows.mean(), rel=1e-6) and model.trained_length == 64
    assert result["tokens"] == len(tokens) and np.count_nonzero(tokens == 3) == 9
    assert f"test perplexity {np.exp(windows.mean()):.2f} per word" in capsys.readouterr().out


def test_score_and_generate_need_nothing_else(run_dir, monkeypatch, capsys):
    words = RunFolder(run_dir).codec.vocabulary.words
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(f"{words[4]} zebra {words[9]}\n".encode()))
    call(score, f"--run_dir={run_dir}", "--format=json")
    record = json.loads(capsys.readouterr().out)
    assert keras_adaptive.load(run_dir).score(f"{words[4]} zebra {words[9]}") == record
    model = RunFolder(run_dir).model()
    log_probs = model.log_probs(np.array([[2, 4, 3, 9]], "int32"))[0][range(4), [4, 3, 9, 2]]
    np.testing.assert_allclose(record["log_probs"], log_probs, atol=1e-4)
    call(generate, f"--run_dir={run_dir}", f"--prompt={words[4]}", "--length=3", "--seed=1")
    assert set(capsys.readouterr().out.split()) <= set(words)


def test_the_folder_without_a_corpus(tmp_path, corpus, capsys):
    call(convert, *PUBLISHED, f"--run_dir={tmp_path}/run")
    assert capsys.readouterr().out == f"Made {tmp_path}/run: 33,240 parameters, 1,000 words\n"
    run = RunFolder(tmp_path / "run")
    assert run.flags() == {"checkpoint": PUBLISHED[0].removeprefix("--checkpoint="), "length": "64"}
    assert run.corpus(corpus).vocabulary.sha256 == run.codec.vocabulary.sha256
    with pytest.raises(ValueError, match="was converted without a corpus: pass --data_dir"):
        call(evaluate, f"--run_dir={tmp_path}/run")


def test_another_vocabulary_of_the_same_size_is_refused(run_dir, tmp_path):
    run = RunFolder(shutil.copytree(run_dir, tmp_path / "run"))
    path = run.path / "vocabulary.txt"
    path.write_bytes(b"!" + path.read_bytes())
    with pytest.raises(ValueError, match="vocabulary.txt is not the vocabulary of this run any more"):
        TextCodec.load(run.path)


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty: pass another --run_dir"):
        call(convert, *PUBLISHED, f"--run_dir={tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_bad_input_leaves_nothing_behind(text, tmp_path):
    prepare_text(text, tmp_path / "data")
    with pytest.raises(ValueError, match=r"has another vocabulary than .*dict.txt: make a corpus with"):
        call(convert, *PUBLISHED, f"--data_dir={tmp_path}/data", f"--run_dir={tmp_path}/run")
    with pytest.raises(ValueError, match="is not a file of torch.save"):
        call(convert, f"--checkpoint={FILES}/dict.txt", PUBLISHED[1], f"--run_dir={tmp_path}/run")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_lines_that_began_with_another_word_are_told_of(tmp_path, capsys):
    contents = torch.load(FILES / "transformer_lm_fairseq.pt", weights_only=True)
    contents["cfg"]["model"]["add_bos_token"] = True
    torch.save(contents, tmp_path / "model.pt")
    call(convert, f"--checkpoint={tmp_path}/model.pt", PUBLISHED[1], f"--run_dir={tmp_path}/run")
    assert "It was trained with add_bos_token: lines began with <s>." in capsys.readouterr().out
