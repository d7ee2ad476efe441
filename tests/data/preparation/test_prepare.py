import hashlib
import json
import tracemalloc

import numpy as np
import pytest

from keras_adaptive.data import (
    EOS,
    SPECIAL_WORDS,
    SPLITS,
    TOKENIZERS,
    UNK,
    Subwords,
    Vocabulary,
    detokenize_subwords,
    load_corpus,
    prepare,
)
from keras_adaptive.data.preparation.word_index import LONGEST_WORD
from tests.support.refusals import refused
from tests.support.text import write_splits

pytestmark = pytest.mark.once

TEXTS = {
    "train": " = a = \n \nthe cat the <unk>\nthe dog\n\n",
    "valid": "the zebra\n\n",
    "test": "a cat without an end",
}


@pytest.fixture
def folder(tmp_path):
    return write_splits(tmp_path / "text", "", **TEXTS)


def snapshot(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tokens_are_the_text(folder, tmp_path):
    corpus = prepare(folder, tmp_path / "data", min_count=1)
    words = {split: corpus.vocabulary.decode(corpus.tokens(split)) for split in SPLITS}
    assert " ".join(words["train"]) == "= a = </s> </s> the cat the <unk> </s> the dog </s> </s>"
    assert " ".join(words["valid"]) == "the <unk> </s> </s>"
    assert " ".join(words["test"]) == "a cat <unk> <unk> <unk> </s>"
    assert corpus.vocabulary.words[4:9] == ["the", "=", "a", "cat", "dog"]


@pytest.mark.parametrize("subwords", [0, 2])
def test_the_most_frequent_words_are_kept(folder, tmp_path, subwords):
    how = {"min_count": 1, "subwords": subwords}
    corpus = prepare(folder, tmp_path / "data", max_words=2, **how)
    words = corpus.word_vocabulary.decode(corpus.words("train"))
    assert " ".join(words[5:10]) == "the <unk> the <unk> </s>" and words[0] == "="
    assert prepare(folder, tmp_path / "data", max_words=2, **how).metadata["max_words"] == 2  # is kept
    for other in (None, 3):
        refused(prepare, folder, tmp_path / "data", max_words=other, **how, match="is not this corpus")
    prepare(folder, tmp_path / "all", **how)
    refused(prepare, folder, tmp_path / "all", max_words=2, **how, match="is not this corpus")


def test_the_words_of_another_vocabulary(folder, tmp_path):
    corpus = prepare(folder, tmp_path / "data", vocabulary=GIVEN)
    words = corpus.vocabulary.decode(corpus.tokens("train"))
    unknown = "<unk> <unk> <unk> </s> </s> the cat the <unk> </s> the <unk> </s> </s>"
    assert " ".join(words) == unknown and corpus.vocabulary.sha256 == GIVEN.sha256
    assert corpus.vocabulary.counts.tolist() == [0, 0, 5, 5, 9, 5, 1]
    assert prepare(folder, tmp_path / "data", min_count=1, vocabulary=GIVEN).tokens("train").size == 14  # is kept
    other = Vocabulary(GIVEN.words, GIVEN.counts[::-1])
    for vocabulary in (None, other):
        refused(prepare, folder, tmp_path / "data", vocabulary=vocabulary, match="Remove it, or choose another")


def test_rare_words_become_unknown(folder, tmp_path):
    corpus = prepare(folder, tmp_path / "data", min_count=2)
    assert corpus.vocabulary.words[4:6] == ["the", "="]
    assert corpus.vocabulary.unknown(["a", "cat", "dog"]) == ["a", "cat", "dog"]
    assert np.count_nonzero(corpus.tokens("train") == UNK) == 4


@pytest.mark.parametrize("min_count, subwords", [(1, 0), (2, 0), (3, 0), (3, 6)])
def test_counts_are_those_of_the_tokens_and_pieces_are_never_unknown(folder, tmp_path, min_count, subwords):
    corpus = prepare(folder, tmp_path / "data", min_count=min_count, subwords=subwords)
    counts = np.bincount(corpus.tokens("train"), minlength=len(corpus.vocabulary))
    assert corpus.vocabulary.counts.tolist() == counts.tolist()
    assert not subwords or [corpus.metadata["splits"][split]["unknown"] for split in SPLITS] == [1, 0, 0]


def test_metadata(folder, tmp_path):
    corpus = prepare(folder, tmp_path / "data", min_count=1)
    metadata = corpus.metadata
    assert metadata == json.loads((tmp_path / "data" / "corpus.json").read_text())
    train = metadata["splits"]["train"]
    assert metadata["source"] == str(folder) and metadata["dtype"] == "uint16"
    assert (metadata["tokenizer"], metadata["unit"], metadata["min_count"]) == ("whitespace", "word", 1)
    assert (train["tokens"], train["lines"], train["unknown"]) == (14, 5, 1)
    assert train["unknown_share"] == pytest.approx(1 / 14) and train["bytes"] == len(TEXTS["train"])
    assert metadata["vocabulary"]["size"] == 16 and "subwords" not in metadata
    for split in SPLITS:
        lines = metadata["splits"][split]["lines"]
        assert lines == np.count_nonzero(corpus.tokens(split) == EOS) == len(TEXTS[split].splitlines())
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"train.tokens", "valid.tokens", "test.tokens", "vocabulary.txt", "corpus.json"}


def test_the_mark_at_the_beginning_of_a_file_is_no_part_of_its_first_word(folder, tmp_path):
    plain = prepare(folder, tmp_path / "plain", min_count=1)
    for split in ("train", "valid"):
        path = folder / f"{split}.txt"
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    marked = prepare(folder, tmp_path / "marked", min_count=1)
    assert marked.vocabulary.words == plain.vocabulary.words
    np.testing.assert_array_equal(marked.tokens("train"), plain.tokens("train"))


def test_raw_text(folder, tmp_path):
    corpus = prepare(folder, tmp_path / "data", tokenizer="words", min_count=1)
    assert corpus.vocabulary.decode(corpus.tokens("train")[6:11]) == ["cat", "the", "<", "unk", ">"]


@pytest.mark.parametrize(
    "size, dtype",
    [(65_535, "uint16"), (65_536, "int32"), (65_537, "int32"), *((size, "uint16") for size in (254, 255, 256, 257))],
)
def test_every_id_fits_into_the_type_of_tokens(folder, tmp_path, size, dtype):
    words = [f"w{i}" for i in range(size - 4)]
    (folder / "train.txt").write_text(" ".join(words), encoding="utf-8")
    vocabulary = Vocabulary.from_counts(dict.fromkeys(words, 1), multiple_of=1)
    corpus = prepare(folder, tmp_path / "data", vocabulary=vocabulary)
    assert len(corpus.vocabulary) == size and corpus.metadata["dtype"] == dtype
    assert corpus.tokens("train").dtype == dtype and corpus.tokens("train").max() == size - 1
    assert np.array_equal(corpus.tokens("train"), vocabulary.encode([*words, "</s>"]))


def test_the_longest_word(folder, tmp_path):
    longest = "é" * (LONGEST_WORD // 2)
    (folder / "train.txt").write_text(f"the {longest} {longest}", encoding="utf-8")
    with pytest.warns(UserWarning, match="Most letters are in words of more than 20 letters"):
        corpus = prepare(folder, tmp_path / "data", min_count=1)
    assert load_corpus(tmp_path / "data").vocabulary.words[4:6] == [longest, "the"] == corpus.vocabulary.words[4:6]
    (folder / "train.txt").write_text(f"the {longest}e", encoding="utf-8")
    refused(prepare, folder, tmp_path / "other", min_count=1, match="Received: a word of 65,537 bytes")
    assert prepare(folder, tmp_path / "other", tokenizer="characters").metadata["unit"] == "character"


def test_only_a_line_feed_ends_a_line(folder, tmp_path):
    (folder / "valid.txt").write_bytes("the\r\ncat\x0c\u2028dog\x85 the\rcat\n".encode())
    corpus = prepare(folder, tmp_path / "data", min_count=1)
    assert " ".join(corpus.vocabulary.decode(corpus.tokens("valid"))) == "the </s> cat dog the cat </s>"


def test_names_of_wikitext(folder, tmp_path):
    for split in SPLITS:
        (folder / f"{split}.txt").rename(folder / f"wiki.{split}.tokens")
    assert len(prepare(folder, tmp_path / "data").tokens("train")) == 14


def test_memory_does_not_grow_with_the_text(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_adaptive.data.preparation.text_parts._CHUNK", 1 << 12)
    monkeypatch.setattr("keras_adaptive.data.preparation.word_index._CHUNK", 1 << 12)
    peaks = []
    for lines in (1_000, 10_000):
        (folder / "train.txt").write_text("the cat sat on the mat\n" * lines, encoding="utf-8")
        tracemalloc.start()
        prepare(folder, tmp_path / str(lines))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("subwords", [0, 6])
def test_the_same_corpus_is_kept_and_another_one_is_refused(folder, tmp_path, subwords):
    data, how = tmp_path / "data", {"min_count": 1, "subwords": subwords}
    prepare(folder, data, **how)
    before = snapshot(data), {path: path.stat().st_mtime_ns for path in data.iterdir()}
    assert prepare(folder, data, **how).metadata["unit"] == ("sub-word" if subwords else "word")
    for other in ({"min_count": 2}, {"tokenizer": "words"}, {"subwords": 5}, {"subwords": 6 - subwords}):
        refused(prepare, folder, data, **{**how, **other}, match="Remove it, or choose another")
    (folder / "test.txt").write_text("another", encoding="utf-8")
    refused(prepare, folder, data, **how, match="Remove it, or choose another")
    assert before == (snapshot(data), {path: path.stat().st_mtime_ns for path in data.iterdir()})


def test_other_files_are_refused_and_an_empty_folder_is_taken(folder, tmp_path):
    (tmp_path / "data").mkdir()
    assert prepare(folder, tmp_path / "data")
    for place in (folder, folder / "train.txt"):
        refused(prepare, folder, place, match="is not this corpus")
    assert set(snapshot(folder).values()) == {text.encode() for text in TEXTS.values()}


GIVEN = Vocabulary([*SPECIAL_WORDS, "cat", "bird", "the"], [0, 0, 0, 0, 9, 5, 1])
LONG = b"the cat\n" + b"ab" * 2_500_000 + b" sat\n"
TOO_LONG = ".txt: words must have at most 65,536 bytes.* Received: a word of 5,000,000 bytes, which begins with 'abab"
BAD = [  # a file and what it holds, arguments, and the message
    ("valid", None, {}, "valid.txt is missing"),
    ("valid", b"", {}, "valid.txt is empty"),
    ("train", b"good\nbad \xff\n", {}, "train.txt:2, byte 5 of the line: not valid UTF-8"),
    ("test", b"line\n" * 300_000 + b"\xc3\n", {}, "test.txt:300001, byte 1 of the line: not valid UTF-8"),
    *((split, b"\n \n\n", {"subwords": n}, f"{split}.txt contains no word") for split in SPLITS[:2] for n in (0, 2)),
    *(
        (split, LONG, {"subwords": n, "tokenizer": tokenizer}, split + TOO_LONG)
        for split, tokenizer in (("train", "whitespace"), ("valid", "words"))
        for n in (0, 500)
    ),
    ("test", b"a", {"tokenizer": "spaces"}, "Received: tokenizer='spaces'"),
    ("test", b"a", {"subwords": -1}, "`subwords` must be the number of merges, or 0 for no .*. Received: subwords=-1"),
    ("test", b"a", {"subwords": 4, "vocabulary": GIVEN}, "`subwords` or `vocabulary`, not both"),
    ("test", b"a", {"max_words": 0}, "`max_words` must be positive. Received: max_words=0"),
    ("test", b"a", {"max_words": 0, "subwords": 2}, "`max_words` must be positive. Received: max_words=0"),
    ("test", b"a", {"processes": 0}, "`processes` must be positive. Received: processes=0"),
]


@pytest.mark.parametrize("split, contents, arguments, message", BAD, ids=lambda one: repr(one)[:40])
def test_bad_input_leaves_nothing_behind(folder, tmp_path, split, contents, arguments, message):
    path = folder / f"{split}.txt"
    path.unlink() if contents is None else path.write_bytes(contents)
    refused(prepare, folder, tmp_path / "data", min_count=1, **arguments, match=message)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_what_a_killed_run_left_is_no_hindrance(folder, tmp_path):
    left = tmp_path / "data.partial"
    (left / "corpus").mkdir(parents=True)
    (left / "corpus" / "train.words").touch()
    corpus = prepare(folder, tmp_path / "data")
    assert len(corpus.tokens("train")) == 14 and not (corpus.data_dir / "train.words").exists()
    assert not left.exists()


SUBWORD_FILES = {"merges.txt", "words.txt", "train.words", "valid.words", "test.words"}


def spelled(corpus, split):
    return "".join(detokenize_subwords(corpus.vocabulary.decode(corpus.tokens(split))))


@pytest.mark.parametrize("tokenizer", ["whitespace", "words"])
def test_pieces_are_the_text(folder, tmp_path, tokenizer):
    (folder / "test.txt").write_text("don't naïve 日本語 x<unk>\n\n zebra's <unk> <s>", encoding="utf-8")
    corpus = prepare(folder, tmp_path / "data", tokenizer=tokenizer, subwords=6)
    for split in SPLITS:
        lines = (folder / f"{split}.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        text = "".join("".join(f" {word}" for word in TOKENIZERS[tokenizer](line)) + "\n" for line in lines)
        assert spelled(corpus, split) == text
    assert {path.name for path in corpus.data_dir.iterdir()} > SUBWORD_FILES
    assert not list(corpus.data_dir.glob("*numbers"))


@pytest.mark.parametrize("min_count", [1, 2, 3])
def test_the_words_of_pieces_are_those_of_a_corpus_of_words(folder, tmp_path, min_count):
    pieces = prepare(folder, tmp_path / "pieces", min_count=min_count, subwords=6)
    words = prepare(folder, tmp_path / "words", min_count=min_count)
    assert pieces.word_vocabulary.words == words.vocabulary.words
    assert pieces.word_vocabulary.counts.tolist() == words.vocabulary.counts.tolist()
    for split in SPLITS:
        assert pieces.words(split).tolist() == words.tokens(split).tolist() == words.words(split).tolist()
        assert pieces.metadata["splits"][split]["words"] == len(words.tokens(split))
        starts = pieces.word_starts(split)
        assert len(starts) == len(words.tokens(split)) and starts[0] == 0 and (np.diff(starts) > 0).all()
        assert words.word_starts(split).tolist() == list(range(len(words.tokens(split))))
        firsts = pieces.vocabulary.decode(pieces.tokens(split)[starts])
        known = [word for word in firsts if word in ("</s>", "<unk>")]
        assert known == [word for word in read_split(folder, split) if word in ("</s>", "<unk>")]


def read_split(folder, split):
    return (folder / f"{split}.txt").read_text().removesuffix("\n").replace("\n", " </s> ").split() + ["</s>"]


def test_metadata_of_pieces(folder, tmp_path):
    metadata = prepare(folder, tmp_path / "data", min_count=2, subwords=3).metadata
    assert (metadata["unit"], metadata["subwords"], metadata["merges"]["number"]) == ("sub-word", 3, 3)
    text = (tmp_path / "data" / "merges.txt").read_bytes()
    assert metadata["merges"]["sha256"] == hashlib.sha256(text).hexdigest()
    train = metadata["splits"]["train"]
    assert (train["words"], train["unknown_words"], train["lines"]) == (14, 4, 5)


def test_a_word_is_cut_once_however_often_it_occurs(folder, tmp_path, monkeypatch):
    cut = []
    pieces = Subwords.pieces
    monkeypatch.setattr(Subwords, "pieces", lambda self, words: pieces(self, cut.append(list(words)) or cut[-1]))
    prepare(folder, tmp_path / "data", subwords=6)
    assert all(len(set(words)) == len(words) for words in cut) and cut


def test_long_texts_of_pieces_are_written_in_chunks(folder, tmp_path, monkeypatch):
    whole = prepare(folder, tmp_path / "whole", subwords=6)
    monkeypatch.setattr("keras_adaptive.data.preparation.word_index._CHUNK", 3)
    chunks = prepare(folder, tmp_path / "chunks", subwords=6)
    assert snapshot(whole.data_dir) == snapshot(chunks.data_dir)
