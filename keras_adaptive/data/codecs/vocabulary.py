import hashlib
import itertools
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keras_adaptive.data.codecs.count_file import count_lines, read_count_file
from keras_adaptive.files import writing
from keras_adaptive.special_words import SPECIAL_WORDS, UNK

_CHUNK = 1 << 20  # number of words of an array that are Python objects at a time


class Vocabulary:
    """Maps words, or any other items, to ids in descending order of their counts in the training text.

    Ids 0 to 3 are `<s>`, `<pad>`, `</s>` (which ends every line) and `<unk>` (which replaces every word outside the
    vocabulary). The other words follow by descending count, so that the first bands of an adaptive softmax hold the
    frequent words.

    The file of a vocabulary has one `word count` per line, without the four special words. This is the layout of
    fairseq's `dict.txt`. Such a file loads unchanged, with the ids of fairseq. The counts of the special words are
    therefore zero after `load`. A line that ends in `#fairseq:overwrite` may repeat a word, which then has the id of
    that line.

    Words may be any hashable items, such as the integer ids of a catalog, which the adaptive layers need sorted by
    count. `encode` and `decode` then map arrays to sorted ids and back.

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

    >>> clicks = np.array([[907, 12, 907], [907, 55, 12]])
    >>> items = Vocabulary.from_counts(dict(zip(*np.unique(clicks, return_counts=True))))
    >>> items.encode(clicks)
    array([[4, 5, 4],
           [4, 6, 5]], dtype=int32)
    >>> items.decode([[4, 6]])
    [[907, 55]]
    """

    def __init__(self, words: Iterable[Hashable], counts: ArrayLike, overwrite: bool = False) -> None:
        self.words: list[Any] = list(words)
        self.counts = np.asarray(counts, np.int64)
        self._ids = {word: i for i, word in enumerate(self.words)}
        self._validate(overwrite)
        self._ids |= zip(SPECIAL_WORDS, range(4))

    @classmethod
    def from_counts(
        cls, counts: Mapping[Hashable, int], min_count: int = 1, multiple_of: int = 8, max_words: int | None = None
    ) -> "Vocabulary":
        """Builds the vocabulary of a text from the counts of its words, or of a data set from the counts of its items.

        Equally frequent words are in alphabetical order (by code point), and numbers in ascending order. The count of
        `<unk>` includes the counts of all words that are not kept.

        Args:
            counts: Dict from words, or any hashable items, to their occurrences. Scalars of NumPy become Python's.
            min_count: Smallest number of occurrences of a word to keep.
            multiple_of: The size is padded to a multiple of this number by words of count 0 (`madeupword0000`, …).
            max_words: Number of the most frequent words to keep. All by default.
        """
        if any(isinstance(word, np.generic) for word in counts):
            counts = {word.item() if isinstance(word, np.generic) else word: counts[word] for word in counts}
        kept = _in_order([word for word in counts if counts[word] >= min_count and word not in SPECIAL_WORDS])
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

        A file whose counts do not descend causes a warning: the bands of an adaptive softmax need frequent words first.

        Raises:
            ValueError: If a line is not a word and its count, a word occurs twice, the counts add up to more than
                2**53, or the file looks like another table, such as one of ids or scores.
        """
        words, counts = read_count_file(path)
        special = len(SPECIAL_WORDS)
        return cls([*SPECIAL_WORDS, *words], [0] * special + counts, overwrite=True)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the vocabulary to a file, one `word count` per line, without the special words.

        Raises:
            ValueError: If a word is not a string, a number or a tuple of these.
        """
        with writing(path), open(path, "wb") as file:
            file.write(self._text())

    def encode(self, words: Iterable[Hashable] | np.ndarray, extra: Sequence[str] = ()) -> np.ndarray:
        """Returns the ids of words. Words outside the vocabulary get the id of `<unk>`.

        Args:
            words: List of words, or an array of any shape.
            extra: Words outside the vocabulary, which get the ids that follow it, as `LanguageModel.for_inference`
                expects.

        Returns:
            An int32 array (words,), or of the shape of the array.

        Raises:
            ValueError: If `words` is a string.
        """
        if isinstance(words, str):
            raise ValueError(f"`words` must be a list. Received: words={words!r}. Split it into words first.")
        known = {**self._ids, **{word: len(self) + i for i, word in enumerate(extra)}} if extra else self._ids
        array = np.asarray(words) if hasattr(words, "__array__") else None
        elements = words if array is None else _elements(array)
        ids = np.fromiter(map(known.get, elements, itertools.repeat(UNK)), np.int32)
        return ids if array is None else ids.reshape(array.shape)

    def decode(self, ids: ArrayLike) -> list[Any]:
        """Returns the list of the words of ids (words,). Ids of another shape give nested lists of this shape.

        Raises:
            ValueError: If an id is outside the vocabulary.
        """
        ids = np.asarray(ids, np.int64)
        outside = ids[(ids < 0) | (ids >= len(self))]
        if outside.size:
            raise ValueError(f"`ids` must be from 0 to {len(self) - 1}. Received: the id {outside[0]}.")
        words = [self.words[i] for i in ids.ravel().tolist()]
        return words if ids.ndim == 1 else np.fromiter(words, object, ids.size).reshape(ids.shape).tolist()

    def with_words(self, words: Iterable[Hashable]) -> "Vocabulary":
        """Returns a vocabulary with further words of count 0, whose ids follow those of all others.

        `models.with_vocabulary` makes a model for it without training.

        Raises:
            ValueError: If a word is in the vocabulary or given twice.
        """
        words = list(words)
        return Vocabulary([*self.words, *words], [*self.counts.tolist(), *[0] * len(words)])

    def unknown(self, words: Iterable[Hashable]) -> list[Any]:
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
        return count_lines(self.words[4:], self.counts[4:].tolist()).encode()

    def _validate(self, overwrite):
        if tuple(self.words[:4]) != SPECIAL_WORDS:
            raise ValueError(f"`words` must begin with {SPECIAL_WORDS}. Received: words={self.words[:4]}.")
        if len(self._ids) < len(self.words) and not overwrite:
            twice = next(word for i, word in enumerate(self.words) if self._ids[word] != i)
            raise ValueError(f"`words` must be distinct. Received: the word {twice!r} twice.")
        if "" in self._ids or any(isinstance(word, str) and "\n" in word for word in self.words):
            raise ValueError("`words` must not be empty or contain a line break: the file has one word per line.")
        if self.counts.shape != (len(self.words),):
            raise ValueError(f"`counts` must have a number per word. Received: sizes {self.counts.size}, {len(self)}.")


def _in_order(words):
    try:
        return sorted(words)
    except TypeError:  # items of several types
        return sorted(words, key=lambda word: (type(word).__name__, repr(word)))


def _elements(array):
    """Yields the elements of an array as Python objects, without a list of all of them."""
    flat = array.ravel()
    for start in range(0, flat.size, _CHUNK):
        yield from flat[start : start + _CHUNK].tolist()


def _fillers(number, taken):
    names = (f"madeupword{i:04d}" for i in itertools.count())
    return itertools.islice((name for name in names if name not in taken), number)
