"""The table of the nearest words, of a model that was not trained."""

import pytest

from keras_adaptive.data import Vocabulary
from keras_adaptive.text import TextModel
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.tiny import WORDS, language_model, system
from trainers import neighbors
from trainers.experiments.run_folder import RunFolder

pytestmark = pytest.mark.once


@pytest.fixture
def run(tmp_path):
    vocabulary = Vocabulary(WORDS, range(len(WORDS), 0, -1))
    facts = {"size": len(vocabulary), "sha256": vocabulary.sha256}
    metadata = {"source": "none", "tokenizer": "whitespace", "unit": "word", "vocabulary": facts}
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.write("--length=8\n", vocabulary, metadata)
    return folder


def test_words_in_the_vocabulary_and_not(run, capsys):
    model = system("CNN")
    model.save(run.path / "best.keras")
    call(neighbors, f"--run_dir={run.path}", "--k=2", "wrod1", "word2")
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["word", "top-1", "top-2"]
    cells = [f"{word} {cosine:.3f}" for word, cosine in model.word_input.neighbors("wrod1", 2)]
    assert first.split() == ["wrod1", *" ".join(cells).split()]
    assert second.startswith("word2 (known)  ") and " word2 " not in second
    call(neighbors, f"--run_dir={run.path}", "--k=99", "wrod1")
    assert len(capsys.readouterr().out.splitlines()[1].split()) == 1 + 2 * len(WORDS[4:])


def test_a_model_that_knows_words_by_their_ids_alone(run, capsys):
    model = language_model()
    model.save(run.path / "best.keras")
    call(neighbors, f"--run_dir={run.path}", "--k=2", "word1")
    (pairs,) = TextModel(model, run.codec).neighbors(["word1"], 2)
    cells = [f"{word} {cosine:.3f}" for word, cosine in pairs]
    assert capsys.readouterr().out.splitlines()[1].split() == ["word1", "(known)", *" ".join(cells).split()]
    refused(neighbors, f"--run_dir={run.path}", "wrod1", match="must be in the vocabulary.*--input=char_cnn.*'wrod1'")
