"""What the tokens of a text are: words, pieces of words, characters or bytes.

A unit is a string, its name in `corpus.json`, and knows what its tokens mean.
"""

from collections.abc import Iterable, Iterator

from keras_adaptive.data.codecs.characters import BYTES, SYMBOLS, detokenize_characters
from keras_adaptive.data.codecs.subwords import begins_word, detokenize_subwords, piece_bytes
from keras_adaptive.special_words import SPECIAL_WORDS

_WHITE_BYTES = {SYMBOLS[byte] for byte in b" \t\r\x0b\x0c"}


class Unit(str):
    """A unit of tokens. This class is the unit of words.

    Attributes:
        is_piece: Whether several tokens may make a word.
        is_character: Whether white space between words is a token, too, so that no space is understood.
    """

    is_piece = False
    is_character = False

    def begins_word(self, token: str) -> bool:
        """Returns whether a word begins with a token. Each character or byte counts as a word."""
        return True

    def shown(self, token: str) -> str:
        """Returns a token as programs print it."""
        return token

    def text(self, token: str) -> bytes:
        """Returns the text of a token, with the space before it."""
        return f" {token}".encode()

    def detokenize(self, tokens: Iterable[str], begins_line: bool = False) -> Iterator[str]:
        """Yields the text of each token, as `TextCodec.detokenize` does."""
        texts = ("\n" if word == "</s>" else f" {word}" for word in tokens)
        return _without_space_at_begin(texts, begins_line)

    def is_white_space(self, token: str) -> bool:
        """Returns whether a token separates words. `</s>` does."""
        return token == "</s>"

    def begins_character(self, token: str) -> bool:
        """Returns whether a token begins with a new character."""
        return True


class PieceUnit(Unit):
    """The unit of pieces of words, which `Subwords` cut."""

    is_piece = True

    def begins_word(self, token: str) -> bool:
        return begins_word(token)

    def text(self, token: str) -> bytes:
        return piece_bytes(token)

    def detokenize(self, tokens: Iterable[str], begins_line: bool = False) -> Iterator[str]:
        return _without_space_at_begin(detokenize_subwords(tokens), begins_line)


class CharacterUnit(Unit):
    """The unit of characters."""

    is_character = True

    def shown(self, token: str) -> str:
        """Returns a token as programs print it: quoted, so that spaces are visible."""
        return token if token in SPECIAL_WORDS else repr(token)

    def text(self, token: str) -> bytes:
        return token.encode()

    def detokenize(self, tokens: Iterable[str], begins_line: bool = False) -> Iterator[str]:
        return detokenize_characters(tokens)

    def is_white_space(self, token: str) -> bool:
        return token == "</s>" or token.isspace()


class ByteUnit(CharacterUnit):
    """The unit of bytes, each written as its symbol in GPT-2."""

    def shown(self, token: str) -> str:
        return repr(bytes([BYTES[token]])) if token in BYTES else super().shown(token)

    def text(self, token: str) -> bytes:
        return piece_bytes(token)

    def detokenize(self, tokens: Iterable[str], begins_line: bool = False) -> Iterator[str]:
        return detokenize_subwords(tokens)

    def is_white_space(self, token: str) -> bool:
        return token == "</s>" or token in _WHITE_BYTES

    def begins_character(self, token: str) -> bool:
        return not 0x80 <= BYTES.get(token, 0) < 0xC0


WORD, PIECE, CHARACTER, BYTE = Unit("word"), PieceUnit("sub-word"), CharacterUnit("character"), ByteUnit("byte")
NAMES: dict[str, Unit] = {str(unit): unit for unit in (WORD, PIECE, CHARACTER, BYTE)}
# Units of these tokenizers. All other tokenizers split lines into words.
UNITS: dict[str, Unit] = {"characters": CHARACTER, "ptb_characters": CHARACTER, "bytes": BYTE}


def units_of(tokenizer: str) -> tuple[Unit, ...]:
    """Returns the units that the tokens of a tokenizer may have: words may also be cut into pieces."""
    return (UNITS[tokenizer],) if tokenizer in UNITS else (WORD, PIECE)


def unit_of(tokenizer: str, in_pieces: bool = False) -> Unit:
    """Returns the unit of the tokens of a tokenizer, whose words may be cut into pieces."""
    return units_of(tokenizer)[in_pieces]


def _without_space_at_begin(texts, begins_line):
    """Yields texts without the space that begins a line."""
    for text in texts:
        yield text.removeprefix(" ") if begins_line else text
        if text:
            begins_line = text.endswith("\n")
