import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.data import TOKENIZERS, tokenize
from keras_adaptive.data.codecs.words import _PLAIN_TEXT, _pattern
from tests.support.languages import LANGUAGES, MARKS

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "text, words",
    [
        ("The cat, the Cat.", "The cat , the Cat ."),
        ("don't l’amour 'quoted' dogs'", "don't l’amour ' quoted ' dogs '"),
        ("3.14 1,000,000 1. 2,x v2 0x7f", "3.14 1,000,000 1 . 2 , x v2 0x7f"),
        ("get_config(self, **kwargs)", "get_config ( self , ** kwargs )"),
        ("naïve nai\u0308ve Straße 語 €5", "naïve nai\u0308ve Straße 語 € 5"),
        ("... >>> well-known -----", "... >>> well - known -----"),
        (" \t\n\u00a0", ""),
    ],
)
def test_words_of_raw_text(text, words):
    assert tokenize(text) == words.split()


def test_words_of_every_script():
    found = {name: tokenize(text) for name, (text, _) in {**LANGUAGES, **MARKS}.items()}
    assert found == {name: words.split() for name, (_, words) in {**LANGUAGES, **MARKS}.items()}


EVERY = "aB3.,'’_->€é語\u0308\u200d\u200b👍🏽🇩❤\ufe0f\u20e3ि·\u05f4 \n\u00a0"


@given(st.one_of(st.text(EVERY), st.text()))
def test_the_shorter_expression_gives_the_same_words(text):
    plain = "".join(_PLAIN_TEXT.findall(text))
    for some in (text, plain):
        assert tokenize(some) == [match[0] for match in _pattern().finditer(some)]


@given(st.text(EVERY))
def test_a_word_is_split_no_further(text):
    words = tokenize(text)
    assert [tokenize(word) for word in words] == [[word] for word in words]


@given(st.text(EVERY))
def test_only_white_space_is_lost(text):
    assert "".join(tokenize(text)) == "".join(text.split())


def test_whitespace_keeps_tokens_as_they_are():
    tokens = TOKENIZERS["whitespace"](" = = the @-@ <unk>\u00a0don't \n")
    assert tokens == ["=", "=", "the", "@-@", "<unk>", "don't"]
