from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.data import Subwords
from keras_adaptive.export.graph_subwords import GraphSubwords
from tests.support.backends import BACKEND
from tests.support.text import NASTY

if BACKEND != "tensorflow":
    pytest.skip("exported graphs are TensorFlow's", allow_module_level=True)

import tensorflow as tf  # noqa: E402

CORPORA = Path(__file__).parents[3] / "shared" / "data"
WORDS = [*(word for line in NASTY for word in line.split()), "१६", "a६b", "a\x00b", "\x00", "aaaaaaa"]


def ids_of(subwords, vocabulary, words):
    return [vocabulary.encode(pieces).tolist() for pieces in subwords.pieces(words)]


@pytest.fixture(scope="module")
def subwords():
    return Subwords.learn(Counter(WORDS * 3), merges=200)


@pytest.fixture(scope="module")
def vocabulary(subwords):
    return subwords.vocabulary(Counter(WORDS))


@pytest.fixture(scope="module")
def graph(subwords, vocabulary):
    return GraphSubwords(subwords, vocabulary)


def test_ids_are_those_of_preparation(graph, subwords, vocabulary):
    ids = graph(tf.constant(WORDS))
    assert ids.to_list() == ids_of(subwords, vocabulary, WORDS)
    assert ids.dtype == tf.int32


def test_the_memory_is_linear_in_the_text(graph, subwords, vocabulary):
    """A table of all words by the bytes of the longest would have 10^10 places."""
    words = [*["b"] * 100_000, "a" * 100_000, "ab" * 999]
    assert graph(tf.constant(words)).to_list() == ids_of(subwords, vocabulary, words)


def test_ids_are_those_of_keras_nlp(graph, subwords, vocabulary):
    pytest.importorskip("tensorflow_text")
    BytePairTokenizer = pytest.importorskip("keras_nlp").tokenizers.BytePairTokenizer
    ids = {word: id for id, word in enumerate(vocabulary.words)}
    tokenizer = BytePairTokenizer(ids, [" ".join(merge) for merge in subwords.merges])
    # It keeps no special word, and drops the digit ६ and what follows a NUL.
    words = [word for word in WORDS if word not in vocabulary.words[:4] and not set(word) & {"६", "\x00"}]
    cut = tf.function(lambda words: tokenizer(tf.strings.join([" ", words])))
    assert graph(tf.constant(words)).to_list() == cut(tf.constant(words)).to_list()


def test_a_line_is_the_pieces_of_its_words(graph, subwords, vocabulary):
    line = "the <unk> cat's 3.50 don't"
    assert graph(tf.strings.split(line)).flat_values.numpy().tolist() == sum(
        ids_of(subwords, vocabulary, line.split()), []
    )
    assert graph(tf.strings.split("")).flat_values.shape == (0,)


@given(st.lists(st.text(min_size=1).filter(lambda text: text.split() == [text]), max_size=4))
def test_ids_of_any_words(graph, subwords, vocabulary, words):
    assert graph(tf.constant(words, tf.string)).to_list() == ids_of(subwords, vocabulary, words)


def test_exported_tables_give_the_same_ids(graph, subwords, vocabulary, tmp_path):
    module = tf.Module()
    module.tables = graph.tables
    module.ids = tf.function(
        lambda line: graph(tf.strings.split(line)).flat_values, input_signature=[tf.TensorSpec([], tf.string)]
    )
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for line in NASTY:
        expected = sum(ids_of(subwords, vocabulary, line.split()), [])
        assert loaded.ids(tf.constant(line)).numpy().tolist() == expected


def test_a_vocabulary_of_another_corpus_is_refused(subwords):
    other = Subwords.learn(Counter(["another", "text"] * 3), merges=20)
    with pytest.raises(ValueError, match=r"take both from one corpus. Received: a vocabulary without \d+"):
        GraphSubwords(subwords, other.vocabulary(Counter(["another", "text"])))


@pytest.mark.parametrize("name", ["books", "wikitext-2"])
def test_ids_of_real_text(name):
    valid, test = (CORPORA / name / f"{split}.txt" for split in ("valid", "test"))
    if not valid.is_file():
        pytest.skip(f"{valid} is missing")
    counts = Counter(valid.read_text(encoding="utf-8").split())
    subwords = Subwords.learn(counts, merges=4000)
    vocabulary = subwords.vocabulary(counts)
    words = sorted(counts | Counter(test.read_text(encoding="utf-8").split()))
    ids = GraphSubwords(subwords, vocabulary)(tf.constant(words)).to_list()
    assert ids == ids_of(subwords, vocabulary, words)
