"""Vocabularies of items that are not strings."""

import collections

import numpy as np
import pytest

from keras_adaptive.data import PAD, UNK, Vocabulary
from tests.support.pages import run
from tests.support.refusals import refused

pytestmark = pytest.mark.once

CLICKS = np.array([[907, 12, 907, 12], [907, 55, 12, -3]])
KINDS = {
    "integers": [907, -3, 2**70, 0],
    "floats": [0.5, 1e300, -2.0],
    "tuples": [(1, 2), (1, "a", (2.5,)), ()],
    "mixed": ["907", 907, (907,), None, True, "é 語"],
}


def items():
    return Vocabulary.from_counts(collections.Counter(CLICKS.ravel().tolist()))


def test_ids_are_sorted_by_count_and_then_by_value():
    assert items().words[:8] == ["<s>", "<pad>", "</s>", "<unk>", 12, 907, -3, 55]
    assert items().counts[4:].tolist() == [3, 3, 1, 1]


def test_counts_of_numpy_give_the_same_vocabulary():
    for dtype in ("int8", "int64", "float32"):
        clicks = np.minimum(CLICKS, 100).astype(dtype)
        counts = dict(zip(*np.unique(clicks, return_counts=True)))
        expected = Vocabulary.from_counts(collections.Counter(clicks.ravel().tolist()))
        assert Vocabulary.from_counts(counts).words == expected.words
        assert all(type(word) in (str, int, float) for word in Vocabulary.from_counts(counts).words)


@pytest.mark.parametrize("shape", [(8,), (2, 4), (2, 2, 2), (4, 2)])
def test_arrays_of_any_shape_are_mapped_and_back(shape):
    clicks = CLICKS.reshape(shape)
    ids = items().encode(clicks)
    assert ids.dtype == np.int32 and ids.shape == shape
    assert ids.ravel().tolist() == [5, 4, 5, 4, 5, 7, 4, 6]
    assert items().decode(ids) == clicks.tolist()


def test_empty_and_scalar_arrays():
    assert items().encode(np.zeros((2, 0), np.int64)).shape == (2, 0)
    assert items().decode(np.zeros((2, 0), np.int64)) == [[], []]
    assert items().encode(np.array(907)).shape == () and items().decode(5) == 907


@pytest.mark.parametrize("dtype", ["int32", "uint64", "float64"])
def test_other_items_are_unknown(dtype):
    other = np.array([[907, 2**31 - 1], [12, 908]]).astype(dtype)
    assert items().encode(other).tolist() == [[5, UNK], [4, UNK]]
    assert items().encode(np.array([2**64 - 3], np.uint64)).tolist() == [UNK]  # as int64, it would be -3


def test_an_array_in_several_chunks(monkeypatch):
    monkeypatch.setattr("keras_adaptive.data.codecs.vocabulary._CHUNK", 3)
    assert items().decode(items().encode(CLICKS)) == CLICKS.tolist()


def test_arrays_of_words():
    words = np.array([["the", "cat"], ["cow", "<pad>"]])
    assert Vocabulary.from_counts({"the": 2, "cat": 1}).encode(words).tolist() == [[4, 5], [UNK, PAD]]


@pytest.mark.parametrize("kind", KINDS)
def test_items_are_saved_and_loaded_with_their_types(tmp_path, kind):
    counts = {item: 9 - i for i, item in enumerate(KINDS[kind])}
    vocabulary = Vocabulary.from_counts(counts)
    vocabulary.save(tmp_path / "items.txt")
    loaded = Vocabulary.load(tmp_path / "items.txt")
    assert list(map(repr, loaded.words)) == list(map(repr, vocabulary.words))
    assert loaded.counts[4:].tolist() == vocabulary.counts[4:].tolist() and loaded.sha256 == vocabulary.sha256
    assert loaded.encode(KINDS[kind]).tolist() == list(range(4, 4 + len(counts)))


def test_items_that_json_cannot_hold_are_not_saved(tmp_path):
    vocabulary = Vocabulary.from_counts({frozenset([1]): 2, b"a": 1})
    assert vocabulary.encode([b"a", frozenset([1]), "a"]).tolist() == [5, 4, UNK]
    match = "Only strings, numbers and tuples of them can be saved"
    refused(vocabulary.save, tmp_path / "items.txt", match=match)


@pytest.mark.parametrize("line", ['{"a": 1} 3', "[1 3", "x 3", "[" * 100_000 + " 3", "[{}] 3"])
def test_damaged_items_are_refused(tmp_path, line):
    (tmp_path / "items.txt").write_text(f"#keras_adaptive:items\n907 5\n{line}\n")
    match = "items.txt:3: expected an item as JSON and its count"
    refused(Vocabulary.load, tmp_path / "items.txt", match=match)


def test_the_example_of_the_documentation(tmp_path, monkeypatch):
    names = run("docs/data.md", 0, tmp_path, monkeypatch)
    assert names["sorted_ids"].tolist() == [[4, 5, 4], [4, 6, 5]] and names["items"].words[4:7] == [907, 12, 55]
    assert np.array_equal(names["clicks_again"], names["clicks"])
