import functools
import itertools
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from keras_adaptive.data.codecs.characters import byte_symbols, characters, ptb_characters

RULES = 2  # version of the rule of `tokenize`, which a corpus records
LETTER = r"[^\W\d_]"
_NUMBER = "[\\d]+(?:[.,\u066b\u066c][\\d]+)+"  # 3.14 and 1,000,000; Arabic has a point and a comma of its own
_APOSTROPHES = "'\u2018\u2019"
_DOTS = "\u00b7\u0387\u05f4\u2027"  # between letters: dots such as in l·l, and the mark of Hebrew abbreviations
# Characters that \w lacks and Unicode counts as letters or digits of a word: modifier letters, the marks that Armenian
# and Hebrew write on a letter, and signs before a number. Other scripts need no such list.
_LETTERS = (
    "\u02c2-\u02c5\u02d2-\u02d7\u02de\u02df\u02e5-\u02eb\u02ed\u02ef-\u02ff\u055a-\u055c\u055e\u055f\u05f3\ua708-\ua716"
    "\ua720\ua721\ua789\ua78a\uab5b\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
_PICTOGRAPHS = (  # symbols that a zero width joiner may join to one emoji; no numerals, which are words
    "\u00a9\u00ae\u203c\u2049\u2122\u2190-\u245f\u249c-\u24e9\u2500-\u2775\u2794-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f0ff\U0001f10d-\U0001faff\U0001fc00-\U0001fffd"
)
_FLAG = "[\U0001f1e6-\U0001f1ff][\U0001f1e6-\U0001f1ff]"
_KEYCAP = "[0-9#*]\ufe0f?\u20e3"
# Text of characters that no rule of Unicode joins, which is most text: a shorter expression gives the same words.
_PLAIN_TEXT = re.compile("[\0-\u00ac\u00ae-\u02c1\u0370-\u0482\u048a-\u0559\u1e00-\u1fff\u2010-\u2027\u2030-\u205e]*")
_PLAIN = re.compile(rf"{_NUMBER}|\w+(?:[{_APOSTROPHES}]\w+|[{_DOTS}]{LETTER}\w*)*|([^\w\s])\1*")


class Rule(NamedTuple):
    r"""Regular expressions of the words of a text, which a graph can use.

    They contain no look-around and no back references. Of classes they contain `LETTER`, and \d, \s and \w in brackets.

    Args:
        word: A word or a number.
        mark: Any other mark. A run of the same one is a word.
        follow: A character that belongs to the character before it.
    """

    word: str
    mark: str
    follow: str


def tokenize(text: str) -> list[str]:
    """Splits raw text into words and punctuation, in any language that separates words by spaces.

    Case is kept. A word is a run of letters, digits and underscores, so that `get_config` and `utf8` are single words.
    An apostrophe between two letters belongs to the word (`don't`, `l'amour`); an apostrophe around a word does not
    (`'quoted'`). A number includes the points and commas between its digits. Every other mark is a separate word, but a
    run of one mark (`...`, `>>>`, a ruler of hyphens) is a single word. White space separates words.

    Accents, vowel signs, points, joiners and format characters belong to the character before them, as in the word
    boundaries of Unicode. Marks that Unicode counts as letters belong to the word too, such as the middle dot of `l·l`.
    An emoji is a single word, together with its modifiers and the emoji that are joined to it. So are a flag and a
    keycap.

    Chinese, Japanese, Thai, Lao, Khmer and Burmese do not separate words by spaces. Their text is split at white space
    and punctuation only, so that a word is a phrase or a clause. Use characters, bytes or `Subwords` for them.

    Args:
        text: A string, such as a line.

    Returns:
        The list of words.

    Reference:
        Unicode Standard Annex #29, Unicode Text Segmentation, section 4.1.

    Example:

    >>> tokenize("Don't panic: it's 3.50 ('cheap')...")
    ["Don't", 'panic', ':', "it's", '3.50', '(', "'", 'cheap', "'", ')', '...']
    >>> tokenize("हिन्दी, col·legi 👍🏽")
    ['हिन्दी', ',', 'col·legi', '👍🏽']
    """
    pattern = _PLAIN if _PLAIN_TEXT.fullmatch(text) else _pattern()
    return [match[0] for match in pattern.finditer(text)]


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "whitespace": str.split,  # tokenized text, such as WikiText and Billion Word
    "words": tokenize,
    "characters": characters,
    "ptb_characters": ptb_characters,
    "bytes": byte_symbols,
}


def recorded(tokenizer: str) -> dict:
    """Returns the entries of `corpus.json` that define a tokenizer."""
    return {"tokenizer": tokenizer} | ({"rules": RULES} if tokenizer == "words" else {})


@functools.cache
def rule() -> Rule:
    """Returns the `Rule` of the tokenizer "words"."""
    signs, follow = _ranges(_is_sign), f"[{_ranges(_is_joined)}]"
    more = rf"[\w{_LETTERS}{follow[1:-1]}]*"
    within = rf"[{_APOSTROPHES}]{follow}*[\w{_LETTERS}]{more}|[{_DOTS}]{follow}*{LETTER}{more}"
    word = rf"{_NUMBER}{follow}*|[\w{_LETTERS}{signs}]{more}(?:{within})*"
    emoji = f"[{_PICTOGRAPHS}](?:{follow}*\u200d[{_PICTOGRAPHS}])*"
    return Rule(word, rf"(?:{_KEYCAP}|{_FLAG}|{emoji}|[^\w\s{_LETTERS}{signs}]){follow}*", follow)


def word_pattern() -> str:
    r"""Returns the regular expression whose matches are the words of a text; see `Rule` for its classes."""
    word, mark, follow = rule()
    return rf"({mark})(?:\1(?!{follow}))*|{word}"  # marks first, since a keycap begins with a digit


@functools.cache
def _pattern():
    return re.compile(word_pattern())


def _is_sign(character):
    """Returns whether a character is a combining mark, such as an accent or a vowel sign."""
    return unicodedata.category(character)[0] == "M"


def _is_joined(character):
    """Returns whether Unicode joins a character to the one before it (Word_Break is Extend, Format or ZWJ)."""
    if unicodedata.category(character) == "Cf":
        return not re.match(f"[{_LETTERS}\u200b]", character)  # U+200B separates words
    return _is_sign(character) or "\U0001f3fb" <= character <= "\U0001f3ff"  # colors of the skin of emoji


def _ranges(holds):
    """Returns the ranges of the code points for which `holds(character)`, to be written between brackets."""
    planes = itertools.chain(range(0xA0, 0x20000), range(0xE0000, 0xE1000))  # the others have no marks
    runs = []
    for code in planes:
        if holds(chr(code)):
            if runs and runs[-1][1] == code - 1:
                runs[-1][1] = code
            else:
                runs.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in runs)
