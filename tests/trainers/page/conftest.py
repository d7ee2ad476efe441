"""Small runs of every unit behind a page, and a client of it."""

import json

import pytest
from starlette.testclient import TestClient

from keras_adaptive.data import Subwords, Vocabulary
from tests.support.tiny import WORDS, language_model, system
from trainers.page.app import Page
from trainers.page.served_run import ServedRun
from trainers.run_folder import RunFolder

ADDRESS = "http://localhost:8000"
COUNTS = [*(0 for _ in range(4)), *(1000 - 60 * number for number in range(16))]


def write_run(path, model, vocabulary, tokenizer="whitespace", unit="word", merges=None, flags="--length=8\n"):
    """Writes the folder of a run, as training would."""
    run = RunFolder(path)
    path.mkdir(parents=True)
    facts = {"size": len(vocabulary), "sha256": vocabulary.sha256}
    metadata = {"source": "none", "tokenizer": tokenizer, "unit": unit, "vocabulary": facts}
    if merges:
        merges.save(path / "merges.txt")
        metadata["merges"] = {"number": len(merges.merges), "sha256": merges.sha256}
    run.write(flags, vocabulary, metadata)
    model.save(path / "best.keras")
    return run


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Paths of the runs by name."""
    root = tmp_path_factory.mktemp("runs")
    words = Vocabulary(WORDS, COUNTS)
    letters = Vocabulary.from_counts({letter: 9 for letter in " abcdefghijklmnopqrstuvwxyz"})
    symbols = Vocabulary.from_counts({symbol: 9 for symbol in "Ġabcdeorw0123456789Ã©"})
    merges = Subwords.learn({"word1": 5, "word2": 5}, merges=4)
    pieces = merges.vocabulary({"word1": 5, "word2": 5})
    write_run(root / "words", language_model(), words)
    write_run(root / "others", system("ASM-T"), words, "words")
    write_run(root / "letters", language_model(len(letters)), letters, "characters", "character")
    write_run(root / "bytes", language_model(len(symbols)), symbols, "bytes", "byte")
    write_run(root / "pieces", language_model(len(pieces)), pieces, "words", "sub-word", merges)
    write_run(root / "cnn", system("CNN"), words)
    return {path.name: path for path in root.iterdir()}


@pytest.fixture(scope="session")
def page(folders):
    return Page([ServedRun(path, name) for name, path in folders.items()])


@pytest.fixture(scope="session")
def client(page):
    return TestClient(page.app(), ADDRESS)


@pytest.fixture(scope="session")
def post(client):
    """Posts to a route of the API and returns the JSON of the answer, which must have this status."""

    def ask(route, status=200, **body):
        headers = {"content-type": "application/json"}
        answer = client.post(f"/api/{route}", content=json.dumps(body), headers=headers)  # which may hold surrogates
        assert answer.status_code == status, answer.text
        return answer.json() if route != "generate" or status != 200 else answer

    return ask
