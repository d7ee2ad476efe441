import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.data import TOKENIZERS, tokenize


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


@given(st.text("aB3.,'’_->€é語\u0308 \n\u00a0"))
def test_only_white_space_is_lost(text):
    assert "".join(tokenize(text)) == "".join(text.split())


def test_whitespace_keeps_tokens_as_they_are():
    assert TOKENIZERS["whitespace"](" = = the @-@ <unk>\u00a0don't \n") == [
        "=",
        "=",
        "the",
        "@-@",
        "<unk>",
        "don't",
    ]
