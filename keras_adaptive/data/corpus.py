import functools
import json
from pathlib import Path

import numpy as np

from keras_adaptive.data.subwords import Subwords, begins_word
from keras_adaptive.data.vocabulary import EOS, UNK, Vocabulary

SPLITS = ("train", "valid", "test")


def load_corpus(data_dir):
    """Opens the corpus that `prepare` wrote into `data_dir`."""
    return Corpus(data_dir)


class Corpus:
    """A text as token ids on disk, with its vocabulary: what training and evaluation read.

    The folder holds `train.tokens`, `valid.tokens` and `test.tokens` (raw little-endian integers),
    `vocabulary.txt` and `corpus.json`. Nothing is read into memory but the vocabulary.

    The tokens of a corpus of sub-words are pieces of words. Its folder also holds `merges.txt`, which cuts words
    into them, and the words themselves: `train.words`, … and `words.txt`, their vocabulary.

    Args:
        data_dir: folder that `keras_adaptive.data.prepare` wrote.

    Raises:
        ValueError: if the folder holds no corpus, or files that do not belong together.

    Example:

    ```python
    corpus = load_corpus("data/books")
    train = corpus.tokens("train")  # np.memmap, (tokens,)
    corpus.vocabulary.decode(train[:10])
    corpus.metadata["splits"]["train"]["lines"]
    ```
    """

    def __init__(self, data_dir):
        self.data_dir = Path(data_dir)
        self.metadata = self._read_metadata()
        self.vocabulary = self._read_vocabulary("vocabulary", "unknown")

    def tokens(self, split):
        """Returns the ids of "train", "valid" or "test": one memory-mapped stream, `</s>` ends each line."""
        return self._read_ids(split, "tokens", self.metadata["dtype"])

    def words(self, split):
        """Returns the ids, in `word_vocabulary`, of the words that the tokens of a split make up; as `tokens`."""
        if self.merges_sha256 is None:
            return self.tokens(split)
        return self._read_ids(split, "words", self.metadata["words"]["dtype"])

    def word_starts(self, split):
        """Returns at which of the tokens of a split each of its words begins, an increasing array."""
        tokens = self.tokens(split)
        if self.merges_sha256 is None:
            return np.arange(len(tokens))
        begins = np.array([begins_word(piece) for piece in self.vocabulary.words])
        return np.flatnonzero(begins[tokens])

    @property
    def merges_sha256(self):
        """The digest of the merges of sub-words; None for a corpus of words."""
        return self.metadata["merges"]["sha256"] if self.metadata["unit"] == "sub-word" else None

    @functools.cached_property
    def word_vocabulary(self):
        """The words and their counts in the training text; of a corpus of words, its vocabulary."""
        if self.merges_sha256 is None:
            return self.vocabulary
        return self._read_vocabulary("words", "unknown_words")

    def subwords(self):
        """Returns the `Subwords` that cut the words of this corpus; None for a corpus of words."""
        return load_subwords(self.data_dir, self.metadata)

    def _read_ids(self, split, kind, dtype):
        if split not in SPLITS:
            raise ValueError(f"`split` must be one of {SPLITS}. Received: {split!r}")
        path = self.data_dir / f"{split}.{kind}"
        dtype = np.dtype(dtype).newbyteorder("<")
        expected = self.metadata["splits"][split][kind] * dtype.itemsize
        size = path.stat().st_size
        if size != expected:
            raise ValueError(f"{path} must have {expected} bytes. Received: {size}. Prepare the corpus anew.")
        return np.memmap(path, dtype, mode="r")

    def _read_metadata(self):
        path = self.data_dir / "corpus.json"
        if not path.is_file():
            raise ValueError(f"{self.data_dir} holds no corpus. Make one with scripts/prepare_corpus.py.")
        return json.loads(path.read_text(encoding="utf-8"))

    def _read_vocabulary(self, name, unknown):
        path = self.data_dir / f"{name}.txt"
        vocabulary = Vocabulary.load(path)
        if vocabulary.sha256 != self.metadata[name]["sha256"]:
            raise ValueError(f"{path} is not the vocabulary of these tokens. Prepare the corpus anew.")
        train = self.metadata["splits"]["train"]
        vocabulary.counts[[EOS, UNK]] = train["lines"], train[unknown]
        return vocabulary


def load_subwords(folder, metadata):
    """Reads the `Subwords` of a folder with `merges.txt`; None if its units are words.

    Raises:
        ValueError: if they are not those that `metadata`, from a `corpus.json`, tells of.
    """
    if metadata["unit"] != "sub-word":
        return None
    path = Path(folder, "merges.txt")
    subwords = Subwords.load(path)
    if subwords.sha256 != metadata["merges"]["sha256"]:
        raise ValueError(f"{path} holds the merges of another corpus. Put back those of this one, or make it anew.")
    return subwords
