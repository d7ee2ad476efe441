import re
from collections.abc import Callable

from keras_adaptive.data.text.characters import byte_symbols, characters, ptb_characters

NUMBER = r"[\d]+(?:[.,][\d]+)+"  # 3.14 and 1,000,000
WORD = r"[\w\u0300-\u036f]+(?:['\u2019][\w\u0300-\u036f]+)*"  # don't, naïve, utf8, get_config
MARK = r"[^\w\s]"
_WORD = re.compile(rf"{NUMBER}|{WORD}|({MARK})\1*")  # one mark, or a run of it: ... >>> ----


def tokenize(text: str) -> list[str]:
    """Splits raw text into words and punctuation, in any language that separates words by spaces.

    Case is kept. A word is a run of letters, digits and underscores, so that `get_config` and `utf8` are single words.
    An apostrophe between two letters belongs to the word (`don't`, `l'amour`); an apostrophe around a word does not
    (`'quoted'`). A number includes the points and commas between its digits. Every other mark is a separate word, but a
    run of one mark (`...`, `>>>`, a ruler of hyphens) is a single word. White space separates words.

    Args:
        text: A string, such as a line.

    Returns:
        The list of words.

    Example:

    >>> tokenize("Don't panic: it's 3.50 ('cheap')...")
    ["Don't", 'panic', ':', "it's", '3.50', '(', "'", 'cheap', "'", ')', '...']
    """
    return [match[0] for match in _WORD.finditer(text)]


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "whitespace": str.split,  # tokenized text, such as WikiText and Billion Word
    "words": tokenize,
    "characters": characters,
    "ptb_characters": ptb_characters,
    "bytes": byte_symbols,
}
