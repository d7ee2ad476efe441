"""Text to tokens and ids, and back, for every unit."""

import json

import numpy as np
import pytest

from keras_adaptive.data import Subwords, TextCodec, Vocabulary, prepare
from tests.support.text import NASTY

pytestmark = pytest.mark.once

LINE = "the naïve  cat, don't"
UNITS = {
    "words": (["whitespace"], "word", " the naïve cat, don't\n"),
    "marks": (["words"], "word", " the naïve cat , don't\n"),
    "characters": (["characters"], "character", LINE + "\n"),
    "bytes": (["bytes"], "byte", LINE + "\n"),
    "sub-words": (["whitespace", 8], "sub-word", " the naïve cat, don't\n"),
}


@pytest.fixture(scope="module", params=UNITS)
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(f"{LINE}\nand so on\n" * 9, encoding="utf-8")
    (tokenizer, *subwords), unit, text = UNITS[request.param]
    corpus = prepare(
        folder, folder / "corpus", tokenizer=tokenizer, min_count=1, subwords=subwords[0] if subwords else 0
    )
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
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(f"{line}\n" * 9, encoding="utf-8")
    corpus = prepare(tmp_path, tmp_path / "corpus", tokenizer="words", min_count=1)
    assert TextCodec.load(corpus.data_dir).tokenize(line) == line.split()
    facts = json.loads((corpus.data_dir / "corpus.json").read_text(encoding="utf-8"))
    assert facts["tokenizer"] == "words" and facts.pop("rules") == 2
    (corpus.data_dir / "corpus.json").write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(ValueError, match="corpus.json has no `rules`"):
        TextCodec.load(corpus.data_dir)


def test_files_that_are_missing_or_do_not_belong_are_named(made, tmp_path):
    corpus, codec, unit, _ = made
    (tmp_path / "vocabulary.txt").write_text("the 9\n")
    with pytest.raises(ValueError, match=r"holds no run \(corpus.json is missing\): pass the folder of a trained"):
        TextCodec.load(tmp_path)
    (tmp_path / "corpus.json").write_text(json.dumps(corpus.metadata))
    with pytest.raises(ValueError, match="vocabulary.txt is not the vocabulary of this run any more"):
        TextCodec.load(tmp_path)


@pytest.mark.parametrize(
    "tokenizer, subwords, message",
    [
        ("bert", None, "one of whitespace, words, .* Received: 'bert'"),
        ("bytes", Subwords([]), "one of white.* 'bytes'"),
    ],
)
def test_tokenizers_that_do_not_exist_or_fit_are_refused(tokenizer, subwords, message):
    with pytest.raises(ValueError, match=f"`tokenizer` must be {message}"):
        TextCodec(Vocabulary.from_counts({"a": 1}), tokenizer, subwords)
