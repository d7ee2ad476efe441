"""Characters and bytes as tokens."""

import itertools
from collections.abc import Iterable, Iterator


def characters(text: str) -> list[str]:
    """Splits a line into its characters (Unicode code points), including spaces.

    Example:

    >>> characters("a b")
    ['a', ' ', 'b']
    """
    return list(text)


def ptb_characters(text: str) -> list[str]:
    """Splits a line of the character-level Penn Treebank: characters separated by spaces, with `_` for a space.

    Example:

    >>> ptb_characters("a _ b")
    ['a', ' ', 'b']
    """
    return [" " if token == "_" else token for token in text.split()]


def byte_symbols(text: str) -> list[str]:
    """Splits a line into its bytes in UTF-8, each written as its symbol in GPT-2; `Ġ` is the space.

    Example:

    >>> byte_symbols("a é")
    ['a', 'Ġ', 'Ã', '©']
    """
    return [SYMBOLS[byte] for byte in text.encode("utf-8", "surrogateescape")]


def detokenize_characters(tokens: Iterable[str]) -> Iterator[str]:
    """Yields the text of each character, and a line break for `</s>`.

    Example:

    >>> "".join(detokenize_characters(["a", " ", "b"]))
    'a b'
    """
    return ("\n" if token == "</s>" else token for token in tokens)


def _symbols():
    """Returns GPT-2's symbol of each byte: itself for visible Latin-1 characters, U+0100, … for the others."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = map(chr, itertools.count(256))
    return [chr(byte) if byte in visible else next(others) for byte in range(256)]


SYMBOLS = _symbols()  # symbol of each byte
BYTES = {symbol: SYMBOLS.index(symbol) for symbol in sorted(SYMBOLS)}
