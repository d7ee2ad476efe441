"""The examples of docs/text_api.md, in their order and with the names of those before; TensorFlow's on TensorFlow."""

import re

import pytest

from keras_adaptive.data import Vocabulary
from keras_adaptive.export import export_saved_model
from keras_adaptive.files import json_text
from tests.support.backends import BACKEND
from tests.support.pages import examples
from tests.support.tiny import WORDS, language_model, system

PAGE = "docs/text_api.md"
SIZES = {"length=20": "length=3", "num_blocks=2": "num_blocks=1", "* 100": "* 3", "dim=64": "dim=8", "128": "16"}
SIZES |= {"_epoch=10": "_epoch=2"}


@pytest.mark.skipif(BACKEND == "jax", reason="TensorFlow runs all examples")
@pytest.mark.usefixtures("eager_predictions")
def test_the_examples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    vocabulary, run = Vocabulary([*WORDS[:4], "It", "was", *WORDS[6:]], range(20, 0, -1)), tmp_path / "runs/books"
    run.mkdir(parents=True)
    vocabulary.save(run / "vocabulary.txt")
    facts = {"size": len(vocabulary), "sha256": vocabulary.sha256}
    metadata = {"tokenizer": "words", "rules": 2, "unit": "word", "vocabulary": facts}
    (run / "corpus.json").write_text(json_text(metadata))
    system("CNN").save(run / "best.keras")
    (tmp_path / "books.txt").write_text("it was the age of foolishness\n" * 20)
    on_tensorflow, names = BACKEND == "tensorflow", {}
    if on_tensorflow:
        export_saved_model(language_model(), vocabulary, tmp_path / "exports/books/1")
    for code in examples(PAGE):
        code = re.sub("|".join(map(re.escape, SIZES)), lambda match: SIZES[match[0]], code)
        if on_tensorflow or "import tensorflow" not in code:
            exec(compile(code, PAGE, "exec"), names)
    assert len(names["record"]["alternatives"]) == 7 and len(names["nearest"]) == len(names["of_numbers"]) == 3
    assert "".join(names["lm"].codec.detokenize(names["tokens"])) in capsys.readouterr().out
    assert len(names["rest"]) == 5 and ("batches" in names) == ("served" in names) == on_tensorflow
