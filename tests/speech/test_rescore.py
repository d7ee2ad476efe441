"""Rescoring of n-best lists: the formats of Kaldi, the best hypotheses, the weights, and what is refused."""

import itertools

import numpy as np
import pytest

from keras_adaptive.data import Subwords, TextCodec, Vocabulary
from keras_adaptive.speech import best_hypotheses, hypothesis_nll, tune_weights, word_errors
from keras_adaptive.text import TextModel
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.served import write_run
from tests.support.tiny import WORDS, language_model
from trainers import rescore

pytestmark = pytest.mark.once

NBEST = "a-b-1 word1 word2 word3\na-b-2 word1 word2 dog\na-b-3\nc-1 word4 word5 word6 word7 word8 word9 word1\n"
COSTS = "a-b-1 4 1\na-b-2 3.5\na-b-3 9\nc-1 2\n"
SPOKEN = "a-b word1 word2 word3\nc word4\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    words = Vocabulary(WORDS, range(20, 0, -1))
    return write_run(tmp_path_factory.mktemp("runs") / "run", language_model(), words).path


@pytest.fixture
def folder(run, tmp_path, monkeypatch):
    """A folder with a run, an n-best list, costs and references."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(run)
    for name, text in (("nbest", NBEST), ("acwt", COSTS), ("text", SPOKEN)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_costs_are_written_as_kaldi_writes_them(folder, capsys):
    call(rescore, "--run_dir=run", "--infile=nbest", "--outfile=nn", "--batch_size=2")
    text = TextModel(language_model(), TextCodec(Vocabulary(WORDS, range(20, 0, -1))), window=8)
    expected = ""
    for line in NBEST.splitlines():
        key, _, words = line.partition(" ")
        record = text.score(words)
        expected += " ".join([key, *(f"{-value:.4f}" for value in record["log_probs"])]) + " \n"
    written = (folder / "nn").read_text()
    for one, other in zip(written.split(" "), expected.split(" "), strict=True):
        assert one == other or float(one) == pytest.approx(float(other), abs=1.1e-4)
    assert len(written.splitlines()) == 4 and written.splitlines()[2].split()[0] == "a-b-3"
    notes = capsys.readouterr().err.splitlines()
    assert "1 empty hypotheses" in notes[0] and "1 unknown words are scored as <unk>: dog" in notes[1]


def test_the_best_hypotheses_and_their_weights(folder, capsys):
    call(rescore, "--run_dir=run", "--infile=nbest", "--costs=acwt", "--weights=1,0", "--best=best")
    assert (folder / "best").read_text() == "a-b word1 word2 dog\nc word4 word5 word6 word7 word8 word9 word1\n"
    call(rescore, "--run_dir=run", "--infile=nbest", "--costs=acwt", "--references=text", "--outfile=nn")
    printed = capsys.readouterr().out
    assert "--weights=1," in printed and "(4 words)" in printed and "175.00 % without" in printed


def test_losses_of_pieces_are_those_of_words():
    subwords = Subwords.learn({"low": 5, "lower": 2, "slow": 2}, merges=3)
    vocabulary = subwords.vocabulary({"low": 5, "lower": 2, "slow": 2})
    text = TextModel(language_model(len(vocabulary)), TextCodec(vocabulary, "words", subwords), window=4)
    (nll, empty) = hypothesis_nll(text, ["slower low", ""])
    assert nll.shape == (3,) and empty.shape == (1,)
    assert nll.sum() == pytest.approx(-text.score("slower low")["log_prob"], abs=1e-4)


def test_errors_are_counted_as_edits():
    pairs = [("", ""), ("a", ""), ("", "a b"), ("a b c", "a x c"), ("b c", "a b c"), ("a a b", "a b b a")]
    assert [word_errors(*pair) for pair in pairs] == [0, 1, 2, 1, 1, 2]


@pytest.mark.parametrize("seed", range(8))
def test_tuned_weights_have_the_fewest_errors(seed):
    random = np.random.default_rng(seed)
    keys = [f"u{number}-{place}" for number in range(6) for place in range(1, 6)]
    costs, errors = random.integers(0, 9, (3, 30)), random.integers(0, 9, 30)

    def count(weights, kinds):
        return sum(errors[keys.index(key)] for key in best_hypotheses(keys, costs[:kinds], weights))

    grid = np.concatenate([np.arange(0.0011, 20, 0.0173), [40, 100]])
    found = tune_weights(keys, costs[:2], errors)
    assert found[0] == 1 and count(found, 2) <= min(count([1, weight], 2) for weight in grid)
    three = tune_weights(keys, costs, errors)
    along = itertools.chain(([1, weight, three[2]] for weight in grid), ([1, three[1], weight] for weight in grid))
    assert count(three, 3) <= min(count(weights, 3) for weights in along) and (three >= 0).all()


BAD = [
    ({"nbest": "a-1 word1\nwell word2\n"}, [], "Line 2 of nbest must be UTTERANCE-N WORDS.* Received: 'well word2'"),
    ({"nbest": "a-1 word1\n\n"}, [], "Line 2 of nbest must be UTTERANCE-N WORDS.* Received: ''"),
    ({"nbest": "a-1 word1\na-1 word2\n"}, [], "Line 2 of nbest must have a new id. Received: 'a-1' again"),
    ({"nbest": ""}, [], "nbest must have lines of .* Received: an empty file"),
    ({"nbest": b"a-1 \xff\n"}, [], "Line 1 of nbest is not UTF-8"),
    ({}, ["--oov=dog"], "`oov` must be a word of the vocabulary.* Received: oov='dog'"),
    ({}, ["--costs=acwt", "--weights=1"], "--weights must be 2 numbers of at least 0.* Received: --weights=1"),
    ({}, ["--costs=acwt", "--weights=1,nan"], "--weights must be 2 numbers of at least 0"),
    ({"acwt": "a-b-1 4\n"}, ["--costs=acwt"], "acwt must have the cost of every hypothesis. .* without 'a-b-2'"),
    ({"acwt": "a-b-1 x\n"}, ["--costs=acwt"], "acwt: line 1 must be an id and finite numbers. Received: 'x'"),
    ({"text": "c word1\n"}, ["--costs=acwt", "--references=text"], "text must have every utterance .* without 'a-b'"),
    ({}, ["--references=text"], "--references finds the weights of --costs and the model: pass --costs"),
    ({}, ["--outfile=nbest"], "The file to write must not be one to read. Received: 'nbest'"),
    ({}, ["--best=run"], "The file to write must be a file. Received: 'run', a folder"),
    ({}, ["--best=none/best"], "No such file or directory"),
]


@pytest.mark.parametrize("files, arguments, match", BAD, ids=lambda one: repr(one)[:40])
def test_bad_input_overwrites_nothing(folder, files, arguments, match):
    for name, contents in {"nn": "before", **files}.items():
        (folder / name).write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    refused(rescore, "--run_dir=run", "--infile=nbest", "--outfile=nn", *arguments, match=match)
    assert (folder / "nn").read_text() == "before"


def test_nothing_to_do_is_refused(folder):
    refused(rescore, "--run_dir=run", "--infile=nbest", match="Pass a file to write, --outfile or --best")
