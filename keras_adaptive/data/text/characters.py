"""Characters and bytes as tokens."""

import itertools

from keras_adaptive.special_words import SPECIAL_WORDS


def characters(text):
    """Splits a line into its characters (Unicode code points), spaces included.

    Example:

    >>> characters("a b")
    ['a', ' ', 'b']
    """
    return list(text)


def ptb_characters(text):
    """Splits a line of the characters of the Penn Treebank, which have spaces between them and `_` for a space.

    Example:

    >>> ptb_characters("a _ b")
    ['a', ' ', 'b']
    """
    return [" " if token == "_" else token for token in text.split()]


def byte_symbols(text):
    """Splits a line into its bytes in UTF-8, each written as its symbol in GPT-2: `Ġ` is the space.

    Example:

    >>> byte_symbols("a é")
    ['a', 'Ġ', 'Ã', '©']
    """
    return [SYMBOLS[byte] for byte in text.encode("utf-8", "surrogateescape")]


def join_characters(tokens):
    """Yields the text of characters, and a line break for `</s>`."""
    return ("\n" if token == "</s>" else token for token in tokens)


def is_white_space(token, unit):
    """Returns whether a "character", or the symbol of a "byte", separates words; `</s>` does."""
    return token == "</s>" or (token.isspace() if unit == "character" else token in _WHITE_BYTES)


def shown(token, unit):
    """Returns a token as it is printed: a "character", or the symbol of a "byte", in quotes, so that spaces are seen.

    Example:

    >>> shown(" ", "character"), shown("Ġ", "byte"), shown("cat", "word")
    ("' '", "b' '", 'cat')
    """
    if unit not in UNITS.values() or token in SPECIAL_WORDS:
        return token
    return repr(bytes([BYTES[token]]) if unit == "byte" and token in BYTES else token)


def begins_character(symbol):
    """Returns whether a character begins with the byte of a symbol."""
    return not 0x80 <= BYTES.get(symbol, 0) < 0xC0


def _symbols():
    """Returns GPT-2's symbol of each byte: visible Latin-1 characters are their own, and U+0100, … are the others'."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = map(chr, itertools.count(256))
    return [chr(byte) if byte in visible else next(others) for byte in range(256)]


SYMBOLS = _symbols()  # by byte
BYTES = {symbol: SYMBOLS.index(symbol) for symbol in sorted(SYMBOLS)}
_WHITE_BYTES = {SYMBOLS[byte] for byte in b" \t\r\x0b\x0c"}
# The units of these tokenizers; the others split lines into words.
UNITS = {"characters": "character", "ptb_characters": "character", "bytes": "byte"}
