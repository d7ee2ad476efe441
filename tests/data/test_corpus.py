import numpy as np
import pytest

from keras_adaptive.data import Subwords, load_corpus, prepare
from tests.support.refusals import refused
from tests.support.text import prepared

pytestmark = pytest.mark.once


@pytest.fixture
def data_dir(tmp_path):
    return prepared(tmp_path, "the cat\nthe\n", min_count=2).data_dir


def test_opens_what_was_prepared(data_dir):
    corpus = load_corpus(data_dir)
    assert corpus.tokens("test").tolist() == [4, 3, 2, 4, 2]
    assert isinstance(corpus.tokens("test"), np.memmap)
    assert corpus.vocabulary.decode(corpus.tokens("test")) == ["the", "<unk>", "</s>", "the", "</s>"]
    assert corpus.vocabulary.counts.tolist() == [0, 0, 2, 1, 2, 0, 0, 0]
    assert corpus.subwords() is corpus.merges_sha256 is None and corpus.word_vocabulary is corpus.vocabulary


def test_refuses_other_splits_and_files(data_dir):
    refused(load_corpus, data_dir.parent, match="holds no corpus. Make one with `python -m trainers.prepare`")
    refused(load_corpus(data_dir).tokens, "dev", match="`split` must be one of .* Received: split='dev'")
    for size in (8, 12):
        (data_dir / "test.tokens").write_bytes(bytes(size))
        refused(load_corpus(data_dir).tokens, "test", match=f"test.tokens must have 10 bytes. Received: {size}")
    with open(data_dir / "vocabulary.txt", "a", encoding="utf-8") as file:
        file.write("dog 0\n")
    refused(load_corpus, data_dir, match="vocabulary.txt is not the vocabulary of these tokens")


@pytest.fixture
def subword_dir(data_dir):
    return prepare(data_dir.parent, data_dir.parent / "pieces", min_count=2, subwords=2).data_dir


def test_opens_sub_words(subword_dir):
    corpus = load_corpus(subword_dir)
    assert corpus.words("test").tolist() == [4, 3, 2, 4, 2]
    assert isinstance(corpus.words("test"), np.memmap)
    pieces = corpus.vocabulary.decode(corpus.tokens("test"))
    assert [pieces[start][0] for start in corpus.word_starts("test")] == ["Ġ", "Ġ", "<", "Ġ", "<"]
    assert corpus.word_vocabulary.counts.tolist() == [0, 0, 2, 1, 2, 0, 0, 0]
    assert corpus.word_vocabulary.words[4] == "the" and corpus.subwords().sha256 == corpus.merges_sha256


def test_refuses_files_of_another_corpus(subword_dir):
    Subwords([("Ġ", "a")]).save(subword_dir / "merges.txt")
    refused(load_corpus(subword_dir).subwords, match="merges.txt holds the merges of another corpus")
    (subword_dir / "test.words").write_bytes(bytes(8))
    refused(load_corpus(subword_dir).words, "test", match="test.words must have 10 bytes. Received: 8")
    with open(subword_dir / "words.txt", "a", encoding="utf-8") as file:
        file.write("dog 0\n")
    other = "words.txt is not the vocabulary of these tokens"
    refused(lambda: load_corpus(subword_dir).word_vocabulary, match=other)
