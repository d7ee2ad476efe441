"""The table of the nearest words, of a model that was not trained."""

import pytest

from keras_adaptive.data import Vocabulary
from keras_adaptive.text import TextModel
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.served import write_run
from tests.support.tiny import WORDS, language_model, system
from trainers import neighbors

pytestmark = pytest.mark.once


VOCABULARY = Vocabulary(WORDS, range(len(WORDS), 0, -1))


def test_words_in_the_vocabulary_and_not(tmp_path, capsys):
    model = system("CNN")
    run = write_run(tmp_path / "run", model, VOCABULARY)
    call(neighbors, f"--run_dir={run.path}", "--k=2", "wrod1", "word2")
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["word", "top-1", "top-2"]
    cells = [f"{word} {cosine:.3f}" for word, cosine in model.word_input.neighbors("wrod1", 2)]
    assert first.split() == ["wrod1", *" ".join(cells).split()]
    assert second.startswith("word2 (known)  ") and " word2 " not in second
    call(neighbors, f"--run_dir={run.path}", "--k=99", "wrod1")
    assert len(capsys.readouterr().out.splitlines()[1].split()) == 1 + 2 * len(WORDS[4:])


def test_a_model_that_knows_words_by_their_ids_alone(tmp_path, capsys):
    model = language_model()
    run = write_run(tmp_path / "run", model, VOCABULARY)
    call(neighbors, f"--run_dir={run.path}", "--k=2", "word1")
    (pairs,) = TextModel(model, run.codec).neighbors(["word1"], 2)
    cells = [f"{word} {cosine:.3f}" for word, cosine in pairs]
    assert capsys.readouterr().out.splitlines()[1].split() == ["word1", "(known)", *" ".join(cells).split()]
    refused(neighbors, f"--run_dir={run.path}", "wrod1", match="must be in the vocabulary.*--input=char_cnn.*'wrod1'")
