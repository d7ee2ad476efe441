import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.data import BOS, EOS, PAD, UNK, Vocabulary
from tests.support.refusals import refused

pytestmark = pytest.mark.once

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def test_words_by_count_then_by_code_point_then_fillers():
    vocabulary = Vocabulary.from_counts({"b": 2, "é": 2, "B": 2, "the": 5})
    assert vocabulary.words == SPECIAL + ["the", "B", "b", "é"]
    assert Vocabulary.from_counts({"a": 1}).words == SPECIAL + ["a"] + [f"madeupword000{i}" for i in range(3)]
    assert Vocabulary.from_counts({"a": 1}, multiple_of=1).words == SPECIAL + ["a"]
    assert Vocabulary.from_counts({"madeupword0000": 3}).words[4:6] == ["madeupword0000", "madeupword0001"]
    assert vocabulary.encode(SPECIAL).tolist() == [BOS, PAD, EOS, UNK] == [0, 1, 2, 3]


def test_counts_of_every_id():
    vocabulary = Vocabulary.from_counts({"a": 5, "b": 1, "</s>": 4, "<unk>": 2, "c": 1}, min_count=2)
    assert vocabulary.words[4] == "a" and "b" not in vocabulary
    assert vocabulary.counts.dtype == np.int64
    assert vocabulary.counts.tolist() == [0, 0, 4, 2 + 1 + 1, 5, 0, 0, 0]


def test_the_most_frequent_words_alone():
    vocabulary = Vocabulary.from_counts({"a": 5, "c": 2, "b": 2, "d": 1, "<unk>": 2}, max_words=2)
    assert vocabulary.words[4:] == ["a", "b", "madeupword0000", "madeupword0001"]
    assert vocabulary.counts[UNK] == 2 + 2 + 1


def test_unknown_words():
    vocabulary = Vocabulary.from_counts({"a": 5, "b": 1})
    ids = vocabulary.encode(["b", "zebra", "a"])
    assert ids.dtype == np.int32 and ids.tolist() == [5, UNK, 4]
    assert vocabulary.unknown(["b", "zebra", "<unk>"]) == ["zebra"]
    assert vocabulary.encode([]).tolist() == []


@given(st.dictionaries(st.text("aB3é語\u0308\u2028\r <>", min_size=1), st.integers(1, 50)))
def test_saves_loads_and_decodes(tmp_path_factory, counts):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary = Vocabulary.from_counts(counts)
    vocabulary.save(path)
    loaded = Vocabulary.load(path)
    assert loaded.words == vocabulary.words and loaded.sha256 == vocabulary.sha256
    assert loaded.counts[4:].tolist() == vocabulary.counts[4:].tolist()
    assert len(loaded) % 8 == 0
    assert loaded.decode(loaded.encode(list(counts))) == list(counts)


def test_file_has_one_word_and_count_a_line(tmp_path):
    Vocabulary.from_counts({"the": 9, "cat": 2, "<unk>": 3}, multiple_of=1).save(tmp_path / "v.txt")
    assert (tmp_path / "v.txt").read_bytes() == b"the 9\ncat 2\n"


def test_loads_a_dictionary_of_fairseq(golden):
    path = golden.folder / "dict.txt"
    words = [line.rsplit(" ", 1)[0] for line in path.read_text(encoding="utf-8").splitlines()]
    assert Vocabulary.load(path).words == SPECIAL + words


def test_sha256_depends_on_words_order_and_counts():
    texts = [{"a": 2, "b": 1}, {"a": 1, "b": 2}, {"a": 3, "b": 1}, {"a": 2, "c": 1}]
    assert len({Vocabulary.from_counts(counts).sha256 for counts in texts}) == 4


def test_ids_outside_and_strings_are_refused():
    vocabulary = Vocabulary.from_counts(Counter(a=1))
    for ids in ([8], [-1], [4, 100]):
        refused(vocabulary.decode, ids, match=f"from 0 to 7. Received: the id {ids[-1]}")
    refused(vocabulary.encode, "a b", match="must be a list")


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "empty"),
        (b"the 9\ncat\n", "v.txt:2: expected a word and its count"),
        (b"the 9\n\n", "v.txt:2: expected a word and its count"),
        (b"the 9\ncat two\n", "v.txt:2: expected a word and its count"),
        (b"the 9\ncat 2\nthe 1\n", "v.txt:3: 'the' occurs twice"),
        (b"the 9\n<unk> 2\n", "v.txt:2: '<unk>' occurs twice"),
        (b"the 9\n\xff 2\n", "v.txt:2: not valid UTF-8"),
    ],
)
def test_load_names_file_and_line(tmp_path, text, message):
    (tmp_path / "v.txt").write_bytes(text)
    refused(Vocabulary.load, tmp_path / "v.txt", match=re.escape(message))


def test_the_mark_of_editors_is_no_part_of_the_first_word(tmp_path):
    (tmp_path / "v.txt").write_text("\ufeffthe 9\n\ufeffcat 2\n", encoding="utf-8")
    assert Vocabulary.load(tmp_path / "v.txt").words[4:] == ["the", "\ufeffcat"]


def test_a_line_may_overwrite_a_word(tmp_path):
    """As in fairseq, the word gets the new id, and the first id stays without a word."""
    text = b"the 9\ncat 2\n</s> 1 #fairseq:overwrite\nthe 1 #fairseq:overwrite\ndog 0 #fairseq:overwrite\n"
    (tmp_path / "v.txt").write_bytes(text)
    vocabulary = Vocabulary.load(tmp_path / "v.txt")
    assert vocabulary.words[4:] == ["the", "cat", "</s>", "the", "dog"] and len(vocabulary) == 9
    assert vocabulary.encode(["the", "cat", "dog", "</s>", "cow"]).tolist() == [7, 5, 8, 2, 3]
    assert vocabulary.counts.tolist() == [0, 0, 0, 0, 9, 2, 1, 1, 0]
    vocabulary.save(tmp_path / "saved.txt")
    assert (tmp_path / "saved.txt").read_bytes() == text.replace(b"dog 0 #fairseq:overwrite", b"dog 0")
    assert Vocabulary.load(tmp_path / "saved.txt").sha256 == vocabulary.sha256


@pytest.mark.parametrize(
    "words, counts, message",
    [
        (["a"], [1], "must begin with"),
        ([*SPECIAL, "a", "a"], [0] * 6, "distinct. Received: the word 'a' twice"),
        ([*SPECIAL, "a b\n"], [0] * 5, "line break"),
        ([*SPECIAL, ""], [0] * 5, "empty"),
        ([*SPECIAL, "a"], [0] * 4, "must have a number per word. Received: sizes 4, 5"),
    ],
)
def test_constructor_refuses(words, counts, message):
    refused(Vocabulary, words, counts, match=message)
