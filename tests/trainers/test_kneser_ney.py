"""Models of KenLM as members of ensembles, with a reader of ARPA files and an estimator that stand in for KenLM's."""

import json
import math
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keras_adaptive.data import Vocabulary
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.text import prepared
from trainers import evaluate, kneser_ney

pytestmark = pytest.mark.once

TEXTS = {"train": "a b a\nc a\n", "valid": "a b c\n\nb x\n", "test": "a\n"}  # c and x are rare or new: <unk>
ARPA = r"""
\data\
ngram 1=6
ngram 2=3

\1-grams:
-1 <unk> 0
0 <s> -0.3
-0.9 </s> 0
-0.5 a -0.2
-0.7 b -0.1
-0.8 <<unk>> -0.4

\2-grams:
-0.4 <s> a
-0.2 a b
-0.6 <<unk>> </s>

\end\
"""
SEVEN = ARPA.replace("1=6", "1=9")
UNSEEN = 20  # of the 24 words of the vocabulary


class Model:
    """Reads a file in the ARPA format, and backs off as KenLM does, for models of order 2."""

    def __init__(self, path):
        rows = [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]
        self.words = {row[1]: (float(row[0]), float(row[2])) for row in rows if len(row) == 3 and is_number(row[2])}
        self.pairs = {tuple(row[1:]): float(row[0]) for row in rows if len(row) == 3 and not is_number(row[2])}

    def __contains__(self, word):
        return word in self.words

    def full_scores(self, line):
        before = "<s>"
        for word in [*line.split(), "</s>"]:
            known = word if word in self.words else "<unk>"
            pair = self.pairs.get((before, known))
            yield self.words[before][1] + self.words[known][0] if pair is None else pair, 2, known != word
            before = known


def is_number(text):
    return text.removeprefix("-").replace(".", "").isdigit()


@pytest.fixture
def corpus(tmp_path):
    return of_words(tmp_path / "text")


def of_words(folder, words="ab", **texts):
    vocabulary = Vocabulary.from_counts(dict.fromkeys(words, 1), multiple_of=24)
    return prepared(folder, "", vocabulary=vocabulary, **{**TEXTS, **texts})


@pytest.fixture
def estimated(tmp_path, monkeypatch):
    """The text that the estimator saw, once it has."""
    monkeypatch.setitem(sys.modules, "kenlm", SimpleNamespace(Model=Model))
    seen = {}

    def run(command, **_):
        command = dict(zip(command[1::2], command[2::2]))
        seen.update(command, text=Path(command["--text"]).read_text(encoding="utf-8"))
        Path(command["--arpa"]).write_text(ARPA, encoding="utf-8")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(kneser_ney.subprocess, "run", run)
    return seen


def test_the_words_of_the_corpus_are_estimated_and_scored(corpus, tmp_path, estimated, capsys):
    call(kneser_ney, f"--data_dir={corpus.data_dir}", f"--run_dir={tmp_path}/kn", "--order=2")
    assert estimated["text"] == "a b a\n<<unk>> a\n" and estimated["--order"] == "2"
    log10 = [-0.4, -0.2, -0.1 - 0.8, -0.6]  # a b <<unk>> </s>
    log10 += [-0.3 - 0.9]  # </s>
    log10 += [-0.3 - 0.7, -0.1 - 0.8, -0.6]  # b <<unk>> </s>
    with np.load(tmp_path / "kn" / "losses_valid.npz") as kept:
        np.testing.assert_allclose(kept["nll"], -math.log(10) * np.array(log10))
        np.testing.assert_array_equal(kept["words"], corpus.tokens("valid"))
        assert kept["parameters"] == 9
    assert sorted(path.name for path in (tmp_path / "kn").iterdir()) == [
        *("corpus.json", "flags.txt", "losses_test.npz", "losses_valid.npz", "vocabulary.txt")
    ]
    assert f"valid perplexity {10 ** -np.mean(log10):.2f} per word" in capsys.readouterr().out
    again = shutil.copytree(tmp_path / "kn", tmp_path / "again")
    call(evaluate, f"--run_dir={tmp_path}/kn,{again}", f"--output={tmp_path}/both.json")
    result = json.loads((tmp_path / "both.json").read_text())
    assert result["optimal"]["perplexity"]["valid"] == pytest.approx(10 ** -np.mean(log10))


def test_words_that_the_training_text_lacks_share_a_probability(tmp_path, estimated):
    """`d` is in the vocabulary and not in the training text; so are the other special words and the fillers."""
    corpus = of_words(tmp_path / "text", "abd", valid="d\n")
    call(kneser_ney, f"--data_dir={corpus.data_dir}", f"--run_dir={tmp_path}/kn", "--order=2")
    with np.load(tmp_path / "kn" / "losses_valid.npz") as kept:
        expected = [math.log(10) * (0.3 + 1) + math.log(UNSEEN), math.log(10) * 0.9]
        np.testing.assert_allclose(kept["nll"], expected)


def test_sub_words_are_summed_up_to_words(tmp_path, estimated, monkeypatch):
    corpus = prepared(tmp_path / "text", "", **TEXTS, subwords=1)
    model = SimpleNamespace(full_scores=lambda line: [(-1.0, 1, False)] * (len(line.split()) + 1))
    nll = kneser_ney.losses(model, corpus, "valid", kneser_ney.names_of(corpus), 0)
    assert len(nll) == len(corpus.tokens("valid"))


@pytest.mark.parametrize(
    "arpa, arguments, message",
    [
        (ARPA, ["--order=5"], "model.arpa must be a model of --order=5. Received: order 2"),
        (SEVEN, [], "must be a model of the 4 words in the training text of .*corpus. Received: .* 7 words"),
        (ARPA.replace(" b ", " d "), [], "a model that lacks 'b'. Omit --arpa to estimate it"),
        ("", [], "model.arpa is not a model in the ARPA format, or is damaged .its .data. has no numbers"),
        (None, [], "No such file or directory: '.*model.arpa'"),
        (ARPA, ["--data_dir=/nowhere"], "/nowhere holds no corpus"),
        (ARPA, ["--run_dir=/"], "must be empty. Received: '/', a mounted disk"),
        (ARPA, ["--order=1"], "order=1: 1 is not an integer in the range"),
    ],
)
def test_models_of_another_order_or_vocabulary_are_refused(corpus, tmp_path, estimated, arpa, arguments, message):
    if arpa is not None:
        (tmp_path / "model.arpa").write_text(arpa)
    places = [f"--data_dir={corpus.data_dir}", f"--run_dir={tmp_path}/kn", "--order=2", f"--arpa={tmp_path}/model.arpa"]
    refused(kneser_ney, *places, *arguments, match=message)
    assert not (tmp_path / "kn").exists() and not estimated


def test_corpora_that_kenlm_cannot_read_are_refused(tmp_path, estimated):
    corpora = {
        "words or sub-words.* a corpus of characters": prepared(tmp_path / "a", "", **TEXTS, tokenizer="characters"),
        "special words .* Received: the word '<<unk>>'": of_words(tmp_path / "b", ["<<unk>>", "a"]),
        "KenLM needs words that contain no space": of_words(tmp_path / "c", ["a\0b", "a"]),
    }
    for message, corpus in corpora.items():
        places = [f"--data_dir={corpus.data_dir}", f"--run_dir={tmp_path}/kn", "--order=2"]
        refused(kneser_ney, *places, match=message)


def test_what_is_not_installed_is_named(corpus, tmp_path, monkeypatch):
    places = [f"--data_dir={corpus.data_dir}", f"--run_dir={tmp_path}/kn"]
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(ModuleNotFoundError, match="pip install kenlm"):
        call(kneser_ney, *places)
    monkeypatch.setitem(sys.modules, "kenlm", SimpleNamespace(Model=Model))
    places.append(f"--lmplz={tmp_path}/lmplz")
    refused(kneser_ney, *places, match="lmplz must be the estimator of KenLM .No such file")
    failed = SimpleNamespace(returncode=1, stderr="Try --discount_fallback.\n")
    monkeypatch.setattr(kneser_ney.subprocess, "run", lambda *_, **__: failed)
    refused(kneser_ney, *places, match="lmplz failed: Try --discount_fallback.")
    assert not (tmp_path / "kn").exists()
