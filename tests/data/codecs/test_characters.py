"""Corpora of characters and of bytes: nothing of the text is lost, and lengths count what they say."""

import numpy as np
import pytest

from keras_adaptive.data import TOKENIZERS, UNITS, detokenize_characters, detokenize_subwords, prepare
from keras_adaptive.data.codecs.characters import BYTES, SYMBOLS
from keras_adaptive.data.preparation import text_parts
from keras_adaptive.evaluation import lengths
from tests.support.refusals import refused
from tests.support.text import prepared, write_splits

pytestmark = pytest.mark.once

TEXT = "It  was\tthe <unk> naïve 日本語\r\n\n x\u2028y \n"
READ = TEXT.replace("\r\n", "\n")
JOIN = {"characters": detokenize_characters, "bytes": detokenize_subwords}


def spelled(corpus, split):
    return "".join(JOIN[corpus.metadata["tokenizer"]](corpus.vocabulary.decode(corpus.tokens(split))))


@pytest.mark.parametrize("unit", ["characters", "bytes"])
@pytest.mark.parametrize("chunk", [3, 1 << 20])
def test_the_tokens_are_the_whole_text(tmp_path, monkeypatch, unit, chunk):
    monkeypatch.setattr(text_parts, "_CHUNK", chunk)
    corpus = prepared(tmp_path, TEXT, tokenizer=unit)
    assert spelled(corpus, "train") == READ
    assert corpus.metadata["unit"] == UNITS[unit]
    size = len(READ) if unit == "characters" else len(READ.encode())
    assert len(corpus.tokens("train")) == size
    assert corpus.vocabulary.unknown(TOKENIZERS[unit]("It was 日")) == []


def test_bytes_need_not_be_text(tmp_path):
    every = bytes(range(256)) + b"\n\xef\xbb\xbf\xff \x80"
    corpus = prepared(tmp_path, TEXT, test=b"\xef\xbb\xbfa", train=every, tokenizer="bytes")
    tokens = corpus.vocabulary.decode(corpus.tokens("train"))
    assert bytes(10 if token == "</s>" else BYTES[token] for token in tokens) == every + b"\n"
    assert spelled(corpus, "test") == "\ufeffa\n"  # no mark of an editor is left out
    match = "train.txt:2, byte 118 of the line: not valid UTF-8"
    refused(prepare, tmp_path, tmp_path / "characters", tokenizer="characters", match=match)


def test_symbols_are_those_of_sub_words_without_merges():
    assert len(set(SYMBOLS)) == 256 and list(BYTES) == sorted(SYMBOLS)
    assert SYMBOLS[ord("a")] == "a" and SYMBOLS[ord(" ")] == "Ġ" and SYMBOLS[ord("\n")] == "Ċ"


@pytest.mark.parametrize("unit", ["characters", "bytes"])
@pytest.mark.parametrize("chunk", [1, 4, 1 << 20])
def test_lengths_of_the_same_text_are_the_same_for_all_units(tmp_path, monkeypatch, unit, chunk):
    monkeypatch.setattr("keras_adaptive.evaluation.CHUNK", chunk)
    corpus = prepared(tmp_path, TEXT, tokenizer=unit)
    words = prepare(tmp_path, tmp_path / "words", min_count=1)
    expected = {"byte": len(READ.encode()), "character": len(READ), "word": len(TEXT.split()) + TEXT.count("\n")}
    assert lengths(words, "test") == {name: expected[name] for name in ("byte", "word")}
    if unit == "bytes":  # whose white space is that of ASCII
        expected["word"] = len(TEXT.encode().split()) + TEXT.count("\n")
    assert lengths(corpus, "test") == expected


def test_letters_that_are_symbols_of_bytes_do_not_separate_words(tmp_path):
    text = "Ġusti reče ċeċ Čaĉ\n"
    corpus = prepared(tmp_path, TEXT, test=text, tokenizer="characters")
    assert lengths(corpus, "test")["word"] == len(text.split()) + 1


def test_the_characters_of_the_penn_treebank(tmp_path):
    lines, text = b" n o _ i t\n\n $ _ < u n k > _ \xc3\xa9\n", "no it\n\n$ <unk> é\n"
    corpus = prepared(tmp_path, lines, tokenizer="ptb_characters")
    tokens = corpus.vocabulary.decode(corpus.tokens("train"))
    assert corpus.metadata["unit"] == "character" and "".join(detokenize_characters(tokens)) == text
    expected = {"byte": len(text.encode()), "character": len(text), "word": 5 + 3}
    assert lengths(corpus, "test") == expected
    rare = prepare(tmp_path, tmp_path / "rare", tokenizer="ptb_characters", min_count=2)
    assert set(lengths(rare, "test")) == {"character", "word"}  # the bytes of unknown characters are not known


def test_rare_characters_become_unknown(tmp_path):
    corpus = prepared(tmp_path, TEXT, tokenizer="characters", min_count=2)
    assert "日" not in corpus.vocabulary and " " in corpus.vocabulary
    assert np.count_nonzero(corpus.tokens("train") == 3) > 0


@pytest.mark.parametrize("unit", ["characters", "bytes"])
def test_sub_words_are_made_of_words(tmp_path, unit):
    match = f"`subwords` needs a tokenizer.*Received: tokenizer='{unit}'"
    refused(prepared, write_splits(tmp_path, TEXT), tokenizer=unit, subwords=3, match=match)
