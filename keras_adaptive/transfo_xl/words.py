"""The words of a Transformer-XL: their files, and their places among the special words of this package."""

import os
from typing import NamedTuple

import numpy as np

from keras_adaptive.checkpoints.pickles import load_containers
from keras_adaptive.data import Vocabulary
from keras_adaptive.files import read_text, reading
from keras_adaptive.special_words import SPECIAL_WORDS

PICKLED = (b"PK", b"\x80")  # the first bytes of a zip and of a pickle
NAMES = ((), (), ("<eos>",), ("<unk>", "<UNK>"))  # of the four special words; the model has no <s> and no <pad>
NEVER = -1e4  # bias of a word that the model does not have: its probability is 0


class Words(NamedTuple):
    """A vocabulary, and where its words are in the tensors of the model.

    Attributes:
        vocabulary: The `Vocabulary`.
        order: Row in the tensors of each word, −1 for a word that the model does not have.
    """

    vocabulary: Vocabulary
    order: np.ndarray

    @property
    def added(self) -> int:
        """Number of special words that the model does not have, which are in the first band."""
        return int(np.sum(self.order < 0))

    def rows(self, array: np.ndarray, missing: float = 0.0) -> np.ndarray:
        """Returns the rows of the model in the order of the vocabulary, for the first band or for all words.

        An array of another length, which does not match the model, is returned unchanged.
        """
        order = self.order[: len(array) + self.added]
        if max(order) >= len(array):
            return array
        rows = np.full((len(order), *array.shape[1:]), missing, array.dtype)
        rows[order >= 0] = array[order[order >= 0]]
        return rows


def read_words(path: str | os.PathLike, first_band: int) -> Words:
    """Reads the file of a vocabulary: a pickled tokenizer (vocab.bin, vocab.pkl), or a text with a word per line.

    `<eos>` becomes `</s>`, and `<s>` and `<pad>` are added. All other words keep their order.

    Args:
        path: Path of the file.
        first_band: Number of words in the first band of the model, where `<eos>` and `<unk>` must be.

    Raises:
        ValueError: If the file is damaged or holds other objects, lower-cases its words, has no `<eos>`, or has it or
            `<unk>` after the first band.
    """
    with reading(path, "a vocabulary of a Transformer-XL", "Write its words to a text file, one per line."):
        with open(path, "rb") as file:
            pickled = file.read(2).startswith(PICKLED)
        words, counts = _tokenizer(load_containers(path)) if pickled else _lines(path)
        if not all(isinstance(word, str) and word and not set(word) & set("\n\r") for word in words):
            raise ValueError("each word must be a text of one line")
        if len(set(words)) < len(words):
            raise ValueError("its words must be distinct")
    ids = {word: number for number, word in enumerate(words)}
    special = [next((ids[name] for name in names if name in ids), -1) for names in NAMES]
    if special[2] < 0 or max(special) >= first_band:
        raise ValueError(
            f"<eos> and <unk> must be among the first {first_band:,} words in {path}. "
            f"Received: <eos> as number {special[2]}, <unk> as number {special[3]}."
        )
    order = [*special, *(number for number in range(len(words)) if number not in special)]
    vocabulary = Vocabulary(
        [*SPECIAL_WORDS, *(words[number] for number in order[4:])],
        [0] * 4 + [counts[words[number]] for number in order[4:]],
        overwrite=True,
    )
    return Words(vocabulary, np.array(order))


def _tokenizer(contents):
    """Returns the words and the counts of the pickled attributes of a tokenizer."""
    if not isinstance(contents, dict) or not isinstance(contents.get("idx2sym"), list):
        raise ValueError("it must hold the words as idx2sym")
    if contents.get("lower_case"):
        raise ValueError("lower_case is not supported")
    words, counter = contents["idx2sym"], contents.get("counter")
    known = isinstance(counter, dict) and all(type(count) is int and count >= 0 for count in counter.values())
    return words, {word: counter.get(word, 0) if known else 1 for word in words}


def _lines(path):
    words = read_text(path).removesuffix("\n").split("\n")
    if any(word.split() != [word] for word in words):
        raise ValueError("a line must be a word")
    return words, dict.fromkeys(words, 1)
