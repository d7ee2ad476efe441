"""A published checkpoint on its way to a perplexity, by the commands of docs/checkpoints.md."""

import contextlib
import io
import shutil

import numpy as np
import pytest

import keras_adaptive
from keras_adaptive import fairseq, transfo_xl
from keras_adaptive.data import TextCodec, Vocabulary, load_corpus
from keras_adaptive.data import prepare as prepare_text
from keras_adaptive.evaluation import word_losses
from tests.support.programs import ROOT, call
from tests.support.refusals import refused
from tests.support.runs import evaluated, scored
from tests.support.text import write_splits
from trainers import convert, evaluate, generate, prepare
from trainers.experiments.run_folder import RunFolder

pytestmark = pytest.mark.once

torch = pytest.importorskip("torch")

FILES = ROOT / "tests" / "golden"
PUBLISHED = [f"--checkpoint={FILES}/transformer_lm_fairseq.pt", f"--dictionary={FILES}/dict.txt"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Lines of words of the dictionary and one that is unknown."""
    random, words = np.random.default_rng(1), Vocabulary.load(FILES / "dict.txt").words[4:204]
    lines = [" ".join(["zebra", *random.choice(words, random.integers(0, 9))]) + "\n" for _ in range(9)]
    return write_splits(tmp_path_factory.mktemp("text"), "".join(lines))


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
    result = evaluated(run_dir, "--blocks_of=lines", "--context=40", "--block=24", split="test")
    model, _ = fairseq.load_language_model(FILES / "transformer_lm_fairseq.pt", FILES / "dict.txt")
    tokens = np.asarray(load_corpus(corpus).tokens("test"), "int32")
    windows = word_losses(model, load_corpus(corpus), "test", 24, 40, 16, by_lines=True)[0]
    assert result["loss"] == pytest.approx(windows.mean(), rel=1e-6) and model.trained_length == 64
    assert result["tokens"] == len(tokens) and np.count_nonzero(tokens == 3) == 9
    assert f"test perplexity {np.exp(windows.mean()):.2f} per word" in capsys.readouterr().out


def test_score_and_generate_need_nothing_else(run_dir, capsys):
    words = RunFolder(run_dir).codec.vocabulary.words
    (record,) = scored(run_dir, f"{words[4]} zebra {words[9]}\n")
    assert keras_adaptive.load(run_dir).score(f"{words[4]} zebra {words[9]}") == record
    model = RunFolder(run_dir).model()
    log_probs = model.log_probs(np.array([[2, 4, 3, 9]], "int32"))[0][range(4), [4, 3, 9, 2]]
    np.testing.assert_allclose(record["log_probs"], log_probs, atol=1e-4)
    call(generate, f"--run_dir={run_dir}", f"--prompt={words[4]}", "--length=3", "--seed=1")
    assert set(capsys.readouterr().out.split()) <= set(words)


def test_the_folder_without_a_corpus(tmp_path, corpus, capsys):
    call(convert, *PUBLISHED, f"--run_dir={tmp_path}/run")
    assert capsys.readouterr().out == f"Wrote {tmp_path}/run: 33,240 parameters, 1,000 words\n"
    run = RunFolder(tmp_path / "run")
    assert run.flags() == {"checkpoint": PUBLISHED[0].removeprefix("--checkpoint="), "length": "64"}
    assert run.corpus(corpus).vocabulary.sha256 == run.codec.vocabulary.sha256
    refused(evaluate, f"--run_dir={tmp_path}/run", match="was converted without a corpus: pass --data_dir")


def test_another_vocabulary_of_the_same_size_is_refused(run_dir, tmp_path):
    run = RunFolder(shutil.copytree(run_dir, tmp_path / "run"))
    path = run.path / "vocabulary.txt"
    path.write_bytes(b"!" + path.read_bytes())
    refused(TextCodec.load, run.path, match="vocabulary.txt is not the vocabulary of this run any more")


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    refused(convert, *PUBLISHED, f"--run_dir={tmp_path}", match="is not empty: pass another --run_dir")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_bad_input_leaves_nothing_behind(text, tmp_path):
    prepare_text(text, tmp_path / "data")
    places = [f"--data_dir={tmp_path}/data", f"--run_dir={tmp_path}/run"]
    refused(convert, *PUBLISHED, *places, match="has another vocabulary than the model: .* --dictionary, .*dict.txt")
    refused(convert, PUBLISHED[0], places[1], match="needs its dict.txt: pass --dictionary")
    no_model = [f"--checkpoint={FILES}/dict.txt", PUBLISHED[1], places[1]]
    refused(convert, *no_model, match="is not a file of torch.save")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_lines_that_began_with_another_word_are_told_of(tmp_path, capsys):
    contents = torch.load(FILES / "transformer_lm_fairseq.pt", weights_only=True)
    contents["cfg"]["model"]["add_bos_token"] = True
    torch.save(contents, tmp_path / "model.pt")
    call(convert, f"--checkpoint={tmp_path}/model.pt", PUBLISHED[1], f"--run_dir={tmp_path}/run")
    assert "It was trained with add_bos_token: lines began with <s>." in capsys.readouterr().out


def test_transformer_xl(text, tmp_path, capsys):
    """The corpus is made with the vocabulary of the converted run, and read as one stream."""
    shutil.copytree(FILES / "transfo_xl", tmp_path / "published")
    words = ["<eos>", "<unk>", *Vocabulary.load(FILES / "dict.txt").words[4:202]]
    (tmp_path / "published/vocab.txt").write_text("\n".join(words))
    checkpoint, run_dir = f"--checkpoint={tmp_path}/published", f"--run_dir={tmp_path}/run"
    refused(convert, checkpoint, run_dir, "--positions=alibi", match="has positions of its own: leave out --positions")
    call(convert, checkpoint, run_dir)
    assert capsys.readouterr().out == f"Wrote {tmp_path}/run: 21,588 parameters, 202 words\n"
    data = [f"--source={text}", f"--dictionary={tmp_path}/run/vocabulary.txt", f"--data_dir={tmp_path}/data"]
    call(prepare, *data)
    result = evaluated(tmp_path / "run", f"--data_dir={tmp_path}/data", split="test")
    model, _ = transfo_xl.load_language_model(tmp_path / "published")
    tokens = np.asarray(load_corpus(tmp_path / "data").tokens("test"), "int32")
    nll = model.nll(np.insert(tokens, 0, 2)[None, :-1], tokens[None])
    assert result["loss"] == pytest.approx(nll.mean(), rel=1e-5) and result["blocks_of"].startswith("tokens with")
    call(prepare, f"--source={text}", f"--data_dir={tmp_path}/other_data")
    places = [f"--data_dir={tmp_path}/other_data", f"--run_dir={tmp_path}/other"]
    refused(convert, checkpoint, *places, match="other_data has another vocabulary than the model: make a corpus")
