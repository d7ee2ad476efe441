"""Text to tokens and ids, and back, for every unit."""

import json

import numpy as np
import pytest

from keras_adaptive.data import Subwords, TextCodec, Vocabulary
from tests.support.refusals import refused
from tests.support.text import NASTY, prepared

pytestmark = pytest.mark.once

LINE = "the naïve  cat, don't"
UNITS = {
    "words": ({"tokenizer": "whitespace"}, "word", " the naïve cat, don't\n"),
    "marks": ({"tokenizer": "words"}, "word", " the naïve cat , don't\n"),
    "characters": ({"tokenizer": "characters"}, "character", LINE + "\n"),
    "bytes": ({"tokenizer": "bytes"}, "byte", LINE + "\n"),
    "sub-words": ({"subwords": 8}, "sub-word", " the naïve cat, don't\n"),
}


@pytest.fixture(scope="module", params=UNITS)
def made(request, tmp_path_factory):
    how, unit, text = UNITS[request.param]
    corpus = prepared(tmp_path_factory.mktemp("text"), f"{LINE}\nand so on\n" * 9, **how)
    return corpus, TextCodec.load(corpus.data_dir), unit, text


def test_lines_become_what_training_read_and_text_again(made):
    corpus, codec, unit, text = made
    tokens = [*codec.tokenize(LINE), "</s>"]
    np.testing.assert_array_equal(codec.encode(tokens), corpus.tokens("valid")[: len(tokens)])
    assert codec.decode(codec.encode(tokens)) == tokens
    assert codec.unit == unit == corpus.metadata["unit"] and "".join(codec.detokenize(tokens)) == text
    assert codec.count_words(tokens) == {"sub-word": 5}.get(unit, len(tokens))
    assert codec.keeps_mark == (unit == "byte")


def test_nasty_lines_survive(made):
    _, codec, unit, _ = made
    for line in NASTY:
        tokens = codec.tokenize(line)
        text = "".join(codec.detokenize(tokens))
        assert codec.tokenize(text) == tokens and (unit not in ("character", "byte") or text == line)


def test_a_corpus_records_its_rule_of_words(tmp_path):
    line = "हिन्दी भाषा"
    corpus = prepared(tmp_path, f"{line}\n" * 9, tokenizer="words")
    assert TextCodec.load(corpus.data_dir).tokenize(line) == line.split()
    facts = json.loads((corpus.data_dir / "corpus.json").read_text(encoding="utf-8"))
    assert facts["tokenizer"] == "words" and facts.pop("rules") == 2
    (corpus.data_dir / "corpus.json").write_text(json.dumps(facts), encoding="utf-8")
    refused(TextCodec.load, corpus.data_dir, match="corpus.json has no `rules`")


def test_files_that_are_missing_or_do_not_belong_are_named(made, tmp_path):
    corpus, codec, unit, _ = made
    (tmp_path / "vocabulary.txt").write_text("the 9\n")
    missing = r"holds no run \(corpus.json is missing\): pass the folder of a trained"
    refused(TextCodec.load, tmp_path, match=missing)
    (tmp_path / "corpus.json").write_text(json.dumps(corpus.metadata))
    refused(TextCodec.load, tmp_path, match="vocabulary.txt is not the vocabulary of this run any more")


def test_tokenizers_that_do_not_exist_or_fit_are_refused():
    words = Vocabulary.from_counts({"a": 1})
    refused(TextCodec, words, "bert", match="`tokenizer` must be one of whitespace, words.* Received: tokenizer='bert'")
    refused(TextCodec, words, "bytes", Subwords([]), match="`tokenizer` must be one of white.*='bytes'")
