"""Units of tokens: what each knows of its tokens."""

import json

import pytest

from keras_adaptive.data.codecs.units import BYTE, CHARACTER, NAMES, PIECE, WORD, unit_of

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "unit, token, text, shown, begins",
    [
        (WORD, "cat", b" cat", "cat", True),
        (PIECE, "er", b"er", "er", False),
        (PIECE, "Ġlow", b" low", "Ġlow", True),
        (PIECE, "</s>", b" </s>", "</s>", True),
        (CHARACTER, " ", b" ", "' '", True),
        (CHARACTER, "<unk>", b"<unk>", "<unk>", True),
        (BYTE, "Ġ", b" ", "b' '", True),
        (BYTE, "<unk>", b" <unk>", "<unk>", True),
    ],
)
def test_a_unit_knows_its_tokens(unit, token, text, shown, begins):
    assert (unit.text(token), unit.shown(token), unit.begins_word(token)) == (text, shown, begins)


def test_a_unit_is_its_name():
    assert list(NAMES) == ["word", "sub-word", "character", "byte"] and json.dumps(PIECE) == '"sub-word"'
    assert [unit_of("words"), unit_of("words", True), unit_of("bytes")] == ["word", "sub-word", "byte"]


def test_characters_and_white_space():
    assert CHARACTER.is_white_space("\u2003") and BYTE.is_white_space("Ġ") and BYTE.is_white_space("</s>")
    assert not BYTE.is_white_space("a") and not CHARACTER.is_white_space("Ġ")
    assert [BYTE.begins_character(token) for token in ("a", "Ã", "©", "</s>")] == [True, True, False, True]
