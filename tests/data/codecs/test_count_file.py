"""Tables that users take for the file of a vocabulary, and files that must load without a word."""

import re
import warnings

import pytest

from keras_adaptive.data import Vocabulary
from tests.support.refusals import refused

pytestmark = pytest.mark.once

IDS, SCORES = "as ids do; expected counts", ".vocab of SentencePiece, which has scores"
TABLES = {
    "words.txt of Kaldi": ("<eps> 0\n!SIL 1\n<unk> 2\ncat 3\nthe 4\n#0 5\n<s> 6\n</s> 7\n", IDS),
    "dictionary of OpenNMT": ("<blank> 1\n<unk> 2\n<s> 3\n</s> 4\nthe 5\ncat 6\n", IDS),
    "ids with gaps": ("the 10\ncat 25\ndog 26\n", IDS),
    "three ids": ("a 0\nb 1\nc 2\n", IDS),
    "ids of sorted words": ("cat 2\ndog 4\nsat 1\nthe 0\nzoo 5\n", "look like ids"),
    "ids with a tab": ("a\t0\nb\t1\nc\t2\n", "looks like a table of ids"),
    "ids before words": ("0 <eps>\n1 cat\n2 dog\n", "The number must follow the word"),
    "ascending counts": (
        "cat 1\nrat 1\ndog 30\nthe 4000\n",
        "the counts ascend; expected the most frequent word first",
    ),
    "scores of a unigram model": ("<unk>\t0\n<s>\t0\n</s>\t0\n▁the\t-3.25\n▁a\t-4.5e-1\n", SCORES),
    "scores with a space": ("▁the -3.25\n▁a -4.5\n", SCORES),
    "scores of pairs": ("<unk>\t0\n<s>\t0\n</s>\t0\n▁t\t-0\nhe\t-1\n", SCORES),
    "counts with a tab": ("the\t90\ncat\t20\ndog\t20\n", "Separate the word and its count by a single space"),
    "counts with a comma": ("the,90\ncat,20\n", "Separate the word and its count by a single space"),
    "aligned counts": ("the   90\nelephant 5\ncat   4\n", "most words end with a space"),
    "counts before words": ("     90 the\n     20 cat\n", "The number must follow the word"),
    "header": ("word count\nthe 90\ncat 20\n", "Remove the first line, which looks like a header"),
    "number of words": ("3\nthe 90\ncat 20\nsat 2\n", "Remove the first line, which looks like a header"),
    "vocab.json": ('{"the": 0, "cat": 1}\n', "looks like JSON"),
    "one word": ("the\n", "expected a word and its count"),
}
COUNTS = {
    "descending": [90, 20, 20, 3],
    "equal": [100, 100, 100, 100],
    "ones": [1] * 9,
    "zeros": [0] * 9,
    "fillers at the end": [9, 2, 0, 0, 0],
    "a word after the fillers": [9, 2, 0, 0, 1],
    "of another version of the text": [366, 252, 220, 149, 164, 77, 109, 108, 60, 98],
    "one after another": [6, 5, 4, 3, 2, 1, 0],
    "a single word": [0],
    "two words": [7, 7],
}
OUT_OF_ORDER = {
    "two words": [20, 4000],
    "last word": [1, 1, 1, 2],
    "no order": [20, 20, 4000, 7],
    "sorted words": [3, 90, 3, 1, 40, 2, 60],
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_another_table_is_refused_in_one_line(tmp_path, name, end):
    text, message = TABLES[name]
    path = tmp_path / "dict.txt"
    path.write_text(text, encoding="utf-8", newline=end)
    assert refused(Vocabulary.load, path, match=re.escape(message)).startswith(str(path))


def test_a_long_line_of_json_is_named(tmp_path):
    (tmp_path / "vocab.json").write_text('{"the": 0, "' + "a" * (1 << 20) + '": 1}')
    refused(Vocabulary.load, tmp_path / "vocab.json", match="more than 1,048,576 bytes. This looks like JSON")


@pytest.mark.parametrize("name", COUNTS)
def test_counts_load_without_a_word(tmp_path, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Vocabulary.load(written(tmp_path, COUNTS[name])).counts[4:].tolist() == COUNTS[name]


@pytest.mark.parametrize("name", OUT_OF_ORDER)
def test_counts_out_of_order_cause_a_warning(tmp_path, name):
    path = written(tmp_path, OUT_OF_ORDER[name])
    with pytest.warns(UserWarning, match="the counts do not descend"):
        loaded = Vocabulary.load(path)
    assert loaded.counts[4:].tolist() == OUT_OF_ORDER[name]


def written(folder, counts):
    path = folder / "dict.txt"
    path.write_text("".join(f"word{i} {count}\n" for i, count in enumerate(counts)))
    return path
