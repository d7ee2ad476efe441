"""The file of a vocabulary, one `word count` per line, and the other tables that users take for it."""

import codecs
import itertools
import json
import re
import reprlib
import warnings

import numpy as np

from keras_adaptive.special_words import SPECIAL_WORDS

MOST = 2**53  # largest number of occurrences of all words together
LONGEST = 1 << 20  # largest number of bytes in a line
OVERWRITE = " #fairseq:overwrite"  # end of a line that repeats the word of an earlier line
ITEMS = "#keras_adaptive:items"  # first line of a file whose words are written as JSON, since not all are strings

_KEEP_ORDER = "To keep the words in this order, write a count of 1 on every line."
_SNIFFED = 1 << 16  # number of characters that are read to recognize a table
_ROW = re.compile(r"(?P<word>.*[^\s,;])(?P<mark>[ \t,;]+)(?P<number>-?\d+(\.\d+)?(e-?\d+)?)")
_NUMBER_FIRST = re.compile(r"\s*\d+[ \t,;]+\S+")


def count_lines(words, counts):
    """Returns the contents of the file of a vocabulary of words, none special, and their counts, a string.

    Words that are not strings are written as JSON, which must have an equal of them.
    """
    if not all(isinstance(word, str) for word in words):
        lines = (f"{_to_json(word)} {count}\n" for word, count in zip(words, counts, strict=True))
        return "".join([f"{ITEMS}\n", *lines])
    lines, known = [], set(SPECIAL_WORDS)
    for word, count in zip(words, counts, strict=True):
        lines.append(f"{word} {count}{OVERWRITE if word in known else ''}\n")
        known.add(word)
    return "".join(lines)


def read_count_file(path):
    """Returns the lists of words and counts in the file of a vocabulary.

    A file whose counts are out of order causes a warning, since the first bands of an adaptive softmax then do not hold
    the frequent words. A table that holds ids or scores instead of counts is refused, by an error that says so.
    """
    words, counts, known, twice, left, of_items = [], [], set(SPECIAL_WORDS), None, MOST, False
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST), b""), 1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)  # some editors write it; it is not part of the word
                of_items = line.rstrip() == ITEMS.encode()
                if of_items:
                    continue
            where = f"{path}:{number}"
            word, count, overwrite = _parse(line, path, where)
            word = _from_json(word, where) if of_items else word
            left -= count
            if left < 0:
                raise ValueError(f"{where}: the counts must add up to at most {MOST:,}. Received: {count}.")
            if word in known and not overwrite and twice is None:
                twice = f"{where}: {word!r} occurs twice. Remove this line."
            words.append(word)
            counts.append(count)
            known.add(word)
    if not words:
        raise ValueError(f"{path}: the vocabulary is empty; expected one `word count` per line.")
    _check_order(path, np.asarray(counts, np.int64))  # before repeated words: a table of ids has the special words too
    if twice:
        raise ValueError(twice)
    if not of_items and 2 * sum(word.endswith(" ") and not word.isspace() for word in words) > len(words):
        raise ValueError(f"{path}: most words end with a space. Separate each word and its count by a single space.")
    return words, counts


def _parse(line, path, where):
    if len(line) == LONGEST:
        message = f"{where}: expected a word and its count. Received: a line of more than {LONGEST:,} bytes."
        raise ValueError(" ".join([message, *_reading(path)]))
    try:
        line = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{where}: not valid UTF-8. Convert the file to UTF-8.") from None
    word, _, count = line.removesuffix(OVERWRITE).rpartition(" ")
    if not word or not count.isdecimal() or len(count) > 20:
        message = f"{where}: expected a word and its count, such as `the 120`. Received: {reprlib.repr(line)}."
        raise ValueError(" ".join([message, *_reading(path)]))
    return word, int(count), line.endswith(OVERWRITE)


def _check_order(path, counts):
    """Raises a ValueError if the counts look like ids or ascend, and warns if they do not descend on the whole.

    Counts need not descend exactly: those of a published dictionary may come from another version of its text.
    """
    if len(np.unique(counts)) > 2 and np.all(np.diff(counts) >= 0):
        if np.any(np.diff(counts) == 0):
            raise ValueError(f"{path}: the counts ascend; expected the most frequent word first. Reverse the lines.")
        raise ValueError(f"{path}: the numbers ascend, as ids do; expected counts, the highest first. {_KEEP_ORDER}")
    if _descent(counts) > 0.9:
        return
    if len(counts) > 3 and len(np.unique(counts)) == len(counts) > np.ptp(counts) / 2:
        raise ValueError(f"{path}: the numbers look like ids; expected counts, the highest first. {_KEEP_ORDER}")
    warnings.warn(
        f"{path}: the counts do not descend, so that frequent words are in bands for rare ones: sort the lines by "
        "descending count, unless a trained model needs this order.",
        stacklevel=4,
    )


def _descent(counts):
    """Returns how far counts descend: 1 if they do, 0 if they ascend, and 0.5 on average for a random order.

    This is the area under the share of the text that the first words cover, between its least and largest value.
    """
    ascending = np.sort(counts)
    area, least, most = (np.cumsum(order, dtype=float).sum() for order in (counts, ascending, ascending[::-1]))
    return (area - least) / (most - least) if most > least else 1.0


def _reading(path):
    """Yields a sentence that says which other table the file looks like, if it looks like one."""
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        lines = file.read(_SNIFFED).split("\n")
    lines = lines[:-1] or lines  # the last line is empty or cut
    rows = [_ROW.fullmatch(line) for line in lines]
    numbers = [float(row["number"]) for row in rows if row]
    if lines[0].lstrip().startswith(("{", "[")):
        yield "This looks like JSON: write one `word count` per line."
    elif any(number < 0 or number % 1 for number in numbers):
        yield f"This looks like the .vocab of SentencePiece, which has scores. {_KEEP_ORDER}"
    elif all(map(_NUMBER_FIRST.fullmatch, lines)):
        yield "The number must follow the word."
    elif not rows[0] and len(rows) > 1 and all(rows[1:]):
        yield "Remove the first line, which looks like a header."
    elif all(rows) and any(row["mark"] != " " for row in rows):
        if all(low < high for low, high in itertools.pairwise(numbers)) and len(numbers) > 2:
            yield f"This looks like a table of ids, which is not one of counts. {_KEEP_ORDER}"
        else:
            yield "Separate the word and its count by a single space."


def _to_json(item):
    try:
        text = json.dumps(item, ensure_ascii=False, allow_nan=False)
        equal = _frozen(json.loads(text)) == item
    except (TypeError, ValueError, RecursionError):
        equal = False
    if not equal:
        raise ValueError(f"Only strings, numbers and tuples of them can be saved. Received: {reprlib.repr(item)}.")
    return text


def _from_json(text, where):
    try:
        item = _frozen(json.loads(text))
        hash(item)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"{where}: expected an item as JSON and its count. Received: {reprlib.repr(text)}.") from None
    return item


def _frozen(value):
    """Returns a value of JSON with tuples instead of lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
