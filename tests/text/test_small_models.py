"""The models of docs/models say what their cards say."""

import json
from pathlib import Path

import pytest

import keras_adaptive
from scripts import small_models
from tests.support.pages import run
from tests.support.refusals import refused

MODELS = Path(small_models.FOLDER)
CARDS = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(MODELS.glob("*/card.json"))]


def test_every_model_has_a_folder_of_at_most_4_megabytes():
    assert {card["name"] for card in CARDS} == {path.name for path in MODELS.glob("*/")}
    for card in CARDS:
        files = [path for path in (MODELS / card["name"]).iterdir() if path.name != "card.json"]
        assert sum(path.stat().st_size for path in files) == card["bytes"] <= 4e6
        assert not any("/" in json.loads((MODELS / card["name"] / "corpus.json").read_text())["source"] for _ in files)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card["name"])
def test_a_model_is_loaded_by_its_name(card, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    lm = keras_adaptive.load(card["name"])
    assert lm.perplexity(card["prompt"]) == pytest.approx(card["perplexity_of_prompt"], rel=1e-4)
    assert [word for word, _ in lm.next_words(card["prompt"], k=5)] == card["next"]
    (tmp_path / card["name"]).mkdir()
    refused(keras_adaptive.load, card["name"], match="vocabulary.txt")  # the folder of that name comes first


def test_the_example(tmp_path, monkeypatch):
    names = run("docs/models.md", 0, tmp_path, monkeypatch)
    assert len(names["surprisals"]) == 9 and len(names["record"]["alternatives"][0]) == 3
