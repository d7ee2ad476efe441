from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.data import TOKENIZERS
from keras_adaptive.export.graph_words import graph_words
from tests.support.backends import BACKEND
from tests.support.languages import LANGUAGES, MARKS

if BACKEND != "tensorflow":
    pytest.skip("exported graphs are TensorFlow's", allow_module_level=True)

import tensorflow as tf  # noqa: E402

CORPORA = Path(__file__).parents[3] / "shared" / "data"
LINES = [
    "The cat, the Cat.",
    "",
    "don't l’amour 'quoted' dogs' rock'n'roll ''",
    "3.14 1,000,000 1. 2,x v2 0x7f 1.2.3,4 ١٢.٣ ²³",
    "get_config(self, **kwargs)->None!! ! ?!?!??",
    "naïve nai\u0308ve \u0308 Straße 語語 €5 日本語 👍👍🏽",
    "... >>> well-known ----- a--b",
    " \t\n\u00a0\x85\x1c\u2003\u2028\u3000",
    "a\x00b \x00\x00 c\x0bd\x1fe \ufeff\u200bz",
    "<s> <pad> </s> <unk> <unk>\u00a0@-@ = = x = =",
    *(text for text, _ in {**LANGUAGES, **MARKS}.values()),
]


@pytest.fixture(scope="module", params=TOKENIZERS)
def split(request):
    """The name of a tokenizer and its graph."""
    specification = [tf.TensorSpec([None], tf.string)]
    return request.param, tf.function(lambda lines: graph_words(lines, request.param), specification)


def words_of(split, lines):
    return [[word.decode() for word in words] for words in split[1](tf.constant(lines, tf.string)).to_list()]


def test_words_are_those_of_training(split):
    assert words_of(split, LINES) == list(map(TOKENIZERS[split[0]], LINES))


def test_no_lines(split):
    assert words_of(split, []) == []


SOME = "aB3.,'’_->€é語\u0308 \n\u00a0\x00\x1f!\u200d\u200b👍🏽🇩❤\ufe0f\u20e3ि·\u05f4"


@given(lines=st.lists(st.one_of(st.text(SOME), st.text()), max_size=4))
def test_words_of_any_text(split, lines):
    assert words_of(split, lines) == list(map(TOKENIZERS[split[0]], lines))


@given(st.binary())
def test_bytes_that_are_no_text(split, line):
    assert words_of(split, [line]) == [TOKENIZERS[split[0]](line.decode(errors="replace"))]


def test_an_unknown_tokenizer_is_refused():
    with pytest.raises(ValueError, match="`tokenizer` must be one of .*'words'.*Received: tokenizer='bpe'"):
        graph_words(tf.constant(["a"]), "bpe")


@pytest.mark.parametrize("name", ["books", "wikitext-2"])
def test_words_of_real_text(split, name):
    path = CORPORA / name / "valid.txt"
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    lines = path.read_text(encoding="utf-8").split("\n")
    assert words_of(split, lines) == list(map(TOKENIZERS[split[0]], lines))
