import numpy as np
import pytest

from keras_adaptive.data import Subwords, load_corpus, prepare

pytestmark = pytest.mark.once


@pytest.fixture
def data_dir(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("the cat\nthe\n", encoding="utf-8")
    prepare(tmp_path, tmp_path / "data", min_count=2)
    return tmp_path / "data"


def test_opens_what_was_prepared(data_dir):
    corpus = load_corpus(data_dir)
    assert corpus.tokens("test").tolist() == [4, 3, 2, 4, 2]
    assert isinstance(corpus.tokens("test"), np.memmap)
    assert corpus.vocabulary.decode(corpus.tokens("test")) == ["the", "<unk>", "</s>", "the", "</s>"]
    assert corpus.vocabulary.counts.tolist() == [0, 0, 2, 1, 2, 0, 0, 0]


def test_refuses_a_folder_without_a_corpus(tmp_path):
    with pytest.raises(ValueError, match="holds no corpus. Make one with `python -m trainers.prepare`"):
        load_corpus(tmp_path)


def test_refuses_another_split(data_dir):
    with pytest.raises(ValueError, match="`split` must be one of .* Received: 'dev'"):
        load_corpus(data_dir).tokens("dev")


@pytest.mark.parametrize("size", [8, 12])
def test_refuses_tokens_of_another_length(data_dir, size):
    (data_dir / "test.tokens").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=f"test.tokens must have 10 bytes. Received: {size}"):
        load_corpus(data_dir).tokens("test")


def test_refuses_another_vocabulary(data_dir):
    with open(data_dir / "vocabulary.txt", "a", encoding="utf-8") as file:
        file.write("dog 0\n")
    with pytest.raises(ValueError, match="vocabulary.txt is not the vocabulary of these tokens"):
        load_corpus(data_dir)


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


def test_a_corpus_of_words_has_no_sub_words(data_dir):
    corpus = load_corpus(data_dir)
    assert corpus.subwords() is corpus.merges_sha256 is None
    assert corpus.word_vocabulary is corpus.vocabulary


def test_refuses_merges_of_another_corpus(subword_dir):
    Subwords([("Ġ", "a")]).save(subword_dir / "merges.txt")
    with pytest.raises(ValueError, match="merges.txt holds the merges of another corpus"):
        load_corpus(subword_dir).subwords()


def test_refuses_words_of_another_corpus(subword_dir):
    with open(subword_dir / "words.txt", "a", encoding="utf-8") as file:
        file.write("dog 0\n")
    with pytest.raises(ValueError, match="words.txt is not the vocabulary of these tokens"):
        load_corpus(subword_dir).word_vocabulary  # noqa: B018


def test_refuses_words_of_another_length(subword_dir):
    (subword_dir / "test.words").write_bytes(bytes(8))
    with pytest.raises(ValueError, match="test.words must have 10 bytes. Received: 8"):
        load_corpus(subword_dir).words("test")
