"""Indexes the words of a part of a text, so that any number of processes can read the text once."""

import itertools
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np

from keras_adaptive.data.codecs.words import TOKENIZERS
from keras_adaptive.data.preparation.text_parts import read_words
from keras_adaptive.files import complete_or_absent

LONGEST_WORD = 1 << 16  # largest number of bytes in a word; longer ones are data, which takes sub-words hours to cut
_CHUNK = 1 << 18  # numbers in memory at a time


def index_words(path, start, stop, checksum, tokenizer, folder):
    """Numbers the distinct words of a part of a text in the order of their first appearance.

    The function writes three files into a new `folder`, which appears complete or not at all: `numbers` (int32), the
    text as numbers of words; `words`, the distinct words, one per line; and `counts` (int64), their occurrences.

    Raises:
        ValueError: If the CRC-32 of the part is not `checksum`, or a word has more than 65,536 bytes.
    """
    try:
        with complete_or_absent(folder) as new:
            _index_words(path, start, stop, checksum, tokenizer, new)
    except OSError:  # an executor may call this again elsewhere if it takes the worker for lost
        if not Path(folder).exists():
            raise


def _index_words(path, start, stop, checksum, tokenizer, folder):
    numbers, read = defaultdict(itertools.count().__next__), 0

    def digest(chunk):
        nonlocal read
        read = zlib.crc32(chunk, read)

    how = {"any_bytes": tokenizer == "bytes", "digest": digest}
    with open(folder / "numbers", "wb") as file:
        for words in read_words(path, TOKENIZERS[tokenizer], start, stop, **how):
            np.fromiter(map(numbers.__getitem__, words), np.int32, len(words)).tofile(file)
    if read != checksum:
        raise ValueError(
            f"{path} must stay the same while it is read, and be the same for all workers. Received: bytes {start} to "
            f"{stop} with CRC-32 {read:08x}, which was {checksum:08x}. Run the same again."
        )
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
