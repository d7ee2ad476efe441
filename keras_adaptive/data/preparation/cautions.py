"""Warnings about a text whose words are probably not those that its user means."""

import re
import warnings

from keras_adaptive.data.codecs.units import UNITS

LONGEST = 20  # letters of a word; more are a phrase in a language without spaces
_WIDE = re.compile("[\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")  # of Chinese and Japanese
_NO_LETTER = re.compile(r"\W+")
ATTACHED, FEWEST = 0.05, 10  # share and number of words that end with a mark from which on the text is raw
_ATTACHED = re.compile(r"[\w\u0300-\u1dff][.,;:!?…»”\")\]。、，！？：；।॥؟،؛።፣։]+\Z")


def warn_about_words(counts: dict[str, int], tokenizer: str) -> None:
    """Warns once if the words of a text are phrases, or if raw text was split at white space alone.

    Words are phrases if more than half of all letters are in words of more than 20 letters. A character of Chinese or
    Japanese counts as three letters. Text is raw if more than 5 % of its words, and at least 10, end with a letter and
    a mark, such as `bridge.`
    """
    if tokenizer in UNITS:
        return
    letters = in_phrases = words = attached = 0
    phrase, example, most = "", "", 0
    for word, count in counts.items():
        if word == "</s>":
            continue
        size = len(word) if len(word) <= LONGEST // 3 else len(_WIDE.sub("aaa", _NO_LETTER.sub("", word)))
        letters += count * size
        words += count
        if size > LONGEST:
            in_phrases += count * size
            phrase = phrase or word
        if tokenizer == "whitespace" and _ATTACHED.search(word):
            attached += count
            example, most = max((example, most), (word, count), key=lambda pair: pair[1])
    if 2 * in_phrases > letters:
        warnings.warn(
            f"Most letters are in words of more than {LONGEST} letters, such as {phrase[:40]!r}: the language may "
            "not separate words by spaces. Use characters, bytes or sub-words (--unit=characters, --subwords=8000).",
            stacklevel=3,
        )
    elif attached >= FEWEST and attached > ATTACHED * words:
        warnings.warn(
            f"{attached / words:.0%} of the words end with a mark, such as {example[:40]!r}: the text is raw, and was "
            "split at white space alone. Use the tokenizer of raw text instead (--tokenizer=words).",
            stacklevel=3,
        )
