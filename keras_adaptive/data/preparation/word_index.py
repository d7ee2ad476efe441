"""Indexes the words of a part of a text, so that any number of processes can read the text once."""

import itertools
from collections import defaultdict
from pathlib import Path

import numpy as np

from keras_adaptive.data.codecs.words import TOKENIZERS
from keras_adaptive.data.preparation.text_parts import read_words
from keras_adaptive.files import writing

LONGEST_WORD = 1 << 16  # largest number of bytes in a word; longer ones are data, which takes sub-words hours to cut
_CHUNK = 1 << 18  # numbers in memory at a time


def index_words(path, start, stop, tokenizer, folder):
    """Numbers the distinct words of a part of a text in the order of their first appearance.

    The function writes three files into `folder`: `numbers` (int32), the text as numbers of words; `words`, the
    distinct words, one per line; and `counts` (int64), their occurrences.

    Raises:
        ValueError: If a word has more than 65,536 bytes.
    """
    folder = Path(folder)
    numbers = defaultdict(itertools.count().__next__)
    with writing(folder):
        with open(folder / "numbers", "wb") as file:
            for words in read_words(path, TOKENIZERS[tokenizer], start, stop, any_bytes=tokenizer == "bytes"):
                np.fromiter(map(numbers.__getitem__, words), np.int32, len(words)).tofile(file)
        _check_lengths(path, numbers)
        counts = np.zeros(len(numbers), np.int64)
        for chunk in read_numbers(folder):
            counts += np.bincount(chunk, minlength=len(numbers))
        counts.tofile(folder / "counts")
        (folder / "words").write_bytes("".join(f"{word}\n" for word in numbers).encode())


def _check_lengths(path, words):
    for word in words:
        if len(word) > LONGEST_WORD // 4 and (size := len(word.encode())) > LONGEST_WORD:
            raise ValueError(
                f"{path}: words must have at most {LONGEST_WORD:,} bytes. Received: a word of {size:,} bytes, which "
                f"begins with {word[:20]!r}. Break it into words, or use characters or bytes as units."
            )


def read_numbers(folder):
    """Yields chunks of the numbers that `index_words` wrote."""
    with open(folder / "numbers", "rb") as file:
        while len(chunk := np.fromfile(file, np.int32, _CHUNK)):
            yield chunk


def read_distinct(folder):
    """Returns the list of distinct words that `index_words` wrote, and the array of their counts."""
    return (folder / "words").read_bytes().decode().split("\n")[:-1], np.fromfile(folder / "counts", np.int64)
