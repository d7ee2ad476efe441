import codecs
import hashlib
import itertools
import os
import reprlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from keras_adaptive.files import writing
from keras_adaptive.special_words import SPECIAL_WORDS, UNK

MOST = 2**53  # largest number of occurrences of all words together
LONGEST = 1 << 20  # largest number of bytes in a line
OVERWRITE = " #fairseq:overwrite"  # end of a line that repeats the word of an earlier line


class Vocabulary:
    """Maps the words of a language model to ids, and holds their counts in the training text.

    Ids 0 to 3 are `<s>`, `<pad>`, `</s>` (which ends every line) and `<unk>` (which replaces every word outside the
    vocabulary). The other words follow by descending count, so that the first bands of an adaptive softmax hold the
    frequent words.

    The file of a vocabulary has one `word count` per line, without the four special words. This is the layout of
    fairseq's `dict.txt`. Such a file loads unchanged, with the ids of fairseq. The counts of the special words are
    therefore zero after `load`. A line that ends in `#fairseq:overwrite` may repeat a word, which then has the id of
    that line.

    Args:
        words: List of all words in the order of their ids. The first four must be the special words.
        counts: Occurrences of each word in the training text, (words,).
        overwrite: Whether words may be repeated. A repeated word has its last id, and a special word its first.

    Attributes:
        words: The list of all words.
        counts: Int64 array (words,).

    Raises:
        ValueError: If the first four words are not the special words, a word is empty, contains a line break or occurs
            twice, or `words` and `counts` have different lengths.

    Example:

    >>> vocabulary = Vocabulary.from_counts({"the": 9, "cat": 2, "sat": 2})
    >>> vocabulary.words[4:8]
    ['the', 'cat', 'sat', 'madeupword0000']
    >>> vocabulary.encode(["the", "dog", "sat", "</s>"])
    array([4, 3, 6, 2], dtype=int32)
    """

    def __init__(self, words: Iterable[str], counts: ArrayLike, overwrite: bool = False) -> None:
        self.words = list(words)
        self.counts = np.asarray(counts, np.int64)
        self._ids = {word: i for i, word in enumerate(self.words)}
        self._validate(overwrite)
        self._ids |= zip(SPECIAL_WORDS, range(4))

    @classmethod
    def from_counts(
        cls, counts: dict[str, int], min_count: int = 1, multiple_of: int = 8, max_words: int | None = None
    ) -> "Vocabulary":
        """Builds the vocabulary of a text from the counts of its words.

        Equally frequent words are in alphabetical order (by code point). The count of `<unk>` includes the counts of
        all words that are not kept.

        Args:
            counts: Dict from words to their occurrences.
            min_count: Smallest number of occurrences of a word to keep.
            multiple_of: The size is padded to a multiple of this number by words of count 0 (`madeupword0000`, …).
            max_words: Number of the most frequent words to keep. All by default.

        Returns:
            The `Vocabulary`.
        """
        kept = sorted(word for word in counts if counts[word] >= min_count and word not in SPECIAL_WORDS)
        kept.sort(key=counts.__getitem__, reverse=True)
        kept = kept[:max_words]
        special = [counts.get(word, 0) for word in SPECIAL_WORDS]
        special[UNK] += sum(counts.values()) - sum(special) - sum(counts[word] for word in kept)
        words = [*SPECIAL_WORDS, *kept]
        words += _fillers(-len(words) % multiple_of, counts)
        known = [*special, *(counts[word] for word in kept)]
        return cls(words, known + [0] * (len(words) - len(known)))

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Vocabulary":
        """Reads a vocabulary that `save` or fairseq wrote. The ids are in the order of the lines.

        Raises:
            ValueError: If a line is not a word and its count, a word occurs twice, or the counts add up to more than
                2**53.
        """
        words, counts, left = list(SPECIAL_WORDS), [0] * len(SPECIAL_WORDS), MOST
        known = set(words)
        with open(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST), b""), 1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)  # some editors write it; it is not part of the word
                word, count, overwrite = _parse(line, f"{path}:{number}")
                left -= count
                if left < 0:
                    raise ValueError(f"{path}:{number}: the counts must add up to at most {MOST:,}. Received: {count}.")
                if word in known and not overwrite:
                    raise ValueError(f"{path}:{number}: {word!r} occurs twice. Remove this line.")
                words.append(word)
                counts.append(count)
                known.add(word)
        if len(words) == len(SPECIAL_WORDS):
            raise ValueError(f"{path}: the vocabulary is empty; expected one `word count` per line.")
        return cls(words, counts, overwrite=True)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the vocabulary to a file, one `word count` per line, without the special words."""
        with writing(path), open(path, "wb") as file:
            file.write(self._text())

    def encode(self, words: Iterable[str], extra: Sequence[str] = ()) -> np.ndarray:
        """Returns the ids of words. Words outside the vocabulary get the id of `<unk>`.

        Args:
            words: List of words.
            extra: Words outside the vocabulary, which get the ids that follow it, as `LanguageModel.for_inference`
                expects.

        Returns:
            An int32 array (words,).

        Raises:
            ValueError: If `words` is a string.
        """
        if isinstance(words, str):
            raise ValueError(f"`words` must be a list. Received: {words!r}. Split it into words first.")
        ids = {**self._ids, **{word: len(self) + i for i, word in enumerate(extra)}} if extra else self._ids
        return np.fromiter(map(ids.get, words, itertools.repeat(UNK)), np.int32)

    def decode(self, ids: ArrayLike) -> list[str]:
        """Returns the list of the words of ids (words,).

        Raises:
            ValueError: If an id is outside the vocabulary.
        """
        ids = np.asarray(ids, np.int64)
        outside = ids[(ids < 0) | (ids >= len(self))]
        if outside.size:
            raise ValueError(f"`ids` must be from 0 to {len(self) - 1}. Received: {outside[0]}")
        return [self.words[i] for i in ids.tolist()]

    def unknown(self, words: Iterable[str]) -> list[str]:
        """Returns those of the words that are outside the vocabulary."""
        return [word for word in words if word not in self._ids]

    @property
    def sha256(self) -> str:
        """SHA-256 of the file that `save` writes. Equal digests mean equal words, ids and counts."""
        return hashlib.sha256(self._text()).hexdigest()

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def _text(self):
        lines, known = [], set(SPECIAL_WORDS)
        for word, count in itertools.islice(zip(self.words, self.counts.tolist(), strict=True), 4, None):
            lines.append(f"{word} {count}{OVERWRITE if word in known else ''}\n")
            known.add(word)
        return "".join(lines).encode()

    def _validate(self, overwrite):
        if tuple(self.words[:4]) != SPECIAL_WORDS:
            raise ValueError(f"`words` must begin with {SPECIAL_WORDS}. Received: {self.words[:4]}")
        if len(self._ids) < len(self.words) and not overwrite:
            twice = next(word for i, word in enumerate(self.words) if self._ids[word] != i)
            raise ValueError(f"`words` must be distinct. Received twice: {twice!r}")
        if "" in self._ids or any("\n" in word for word in self.words):
            raise ValueError("`words` must not be empty or contain a line break: the file has one word per line.")
        if self.counts.shape != (len(self.words),):
            raise ValueError(f"`counts` and `words` must have one length. Received: {self.counts.size} and {len(self)}")


def _fillers(number, taken):
    names = (f"madeupword{i:04d}" for i in itertools.count())
    return itertools.islice((name for name in names if name not in taken), number)


def _parse(line, where):
    if len(line) == LONGEST:
        raise ValueError(f"{where}: expected a word and its count. Received: a line of more than {LONGEST:,} bytes.")
    try:
        line = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{where}: not valid UTF-8. Convert the file to UTF-8.") from None
    word, _, count = line.removesuffix(OVERWRITE).rpartition(" ")
    if not word or not count.isdecimal() or len(count) > 20:
        raise ValueError(f"{where}: expected a word and its count, such as `the 120`. Received: {reprlib.repr(line)}")
    return word, int(count), line.endswith(OVERWRITE)
