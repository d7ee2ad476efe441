import concurrent.futures
import functools
import os
import zlib
from pathlib import Path

import numpy as np

from keras_adaptive.data.codecs.codec import load_subwords
from keras_adaptive.data.codecs.subwords import Subwords
from keras_adaptive.data.codecs.units import Unit
from keras_adaptive.data.codecs.vocabulary import Vocabulary
from keras_adaptive.data.metadata import SPLITS, read_metadata
from keras_adaptive.data.sharded_tokens import ShardedTokens
from keras_adaptive.special_words import EOS, UNK

_CHUNK = 1 << 20  # bytes in memory at a time


def load_corpus(data_dir: str | os.PathLike) -> "Corpus":
    """Opens the corpus in a folder that `keras_adaptive.data.prepare` wrote: returns `Corpus(data_dir)`."""
    return Corpus(data_dir)


class Corpus:
    """Provides the token ids of a text on disk, and its vocabulary, for training and evaluation.

    The folder holds `train.tokens`, `valid.tokens` and `test.tokens` (raw little-endian integers), `vocabulary.txt` and
    `corpus.json`. Only the vocabulary is read into memory. The tokens of a large text are in several files (shards),
    such as `train-00000-of-00008.tokens`, and are read as one stream.

    The tokens of a corpus of sub-words are pieces of words. Its folder also holds `merges.txt`, which defines the
    pieces, and the words themselves: `train.words`, … and their vocabulary, `words.txt`.

    The splits are "train", "valid" and "test".

    Args:
        data_dir: Folder that `keras_adaptive.data.prepare` wrote.

    Attributes:
        metadata: Contents of `corpus.json`, a dict.
        vocabulary: The `Vocabulary` of the tokens.

    Raises:
        ValueError: If the folder holds no corpus, or files that do not belong together. When tokens are opened, if a
            file is missing or its size has changed.

    Example:

    ```python
    corpus = load_corpus("data/books")
    corpus.verify("train")  # compares the checksums of the files
    train = corpus.tokens("train")  # np.memmap or ShardedTokens, (tokens,)
    corpus.vocabulary.decode(train[:10])
    corpus.metadata["splits"]["train"]["lines"]
    ```
    """

    def __init__(self, data_dir: str | os.PathLike) -> None:
        self.data_dir = Path(data_dir)
        self.metadata = self._read_metadata()
        self.vocabulary = self._read_vocabulary("vocabulary", "unknown")

    @property
    def unit(self) -> Unit:
        """The `Unit` of the tokens, such as "word"."""
        return self.metadata["unit"]

    def tokens(self, split: str) -> np.ndarray | ShardedTokens:
        """Returns the token ids (tokens,) of a split as one memory-mapped stream, in which `</s>` ends each line."""
        return self._read_ids(split, "tokens")

    def words(self, split: str) -> np.ndarray | ShardedTokens:
        """Returns the ids (words,) in `word_vocabulary` of a split as one memory-mapped stream.

        For a corpus of words, these are the tokens.
        """
        return self._read_ids(split, "tokens" if self.merges_sha256 is None else "words")

    def word_starts(self, split: str) -> np.ndarray:
        """Returns the positions of those tokens of a split that begin a word, an increasing array (words,)."""
        tokens = self.tokens(split)
        if self.merges_sha256 is None:
            return np.arange(len(tokens))
        begins = np.array(list(map(self.unit.begins_word, self.vocabulary.words)))
        return np.flatnonzero(begins[tokens])

    @property
    def merges_sha256(self) -> str | None:
        """SHA-256 of the merges of sub-words; None for a corpus of words."""
        return self.metadata["merges"]["sha256"] if self.unit.is_piece else None

    @functools.cached_property
    def word_vocabulary(self) -> Vocabulary:
        """The `Vocabulary` of the words, with their counts in the training text."""
        if self.merges_sha256 is None:
            return self.vocabulary
        return self._read_vocabulary("words", "unknown_words")

    def subwords(self) -> Subwords | None:
        """Returns the `Subwords` that cut the words of this corpus into pieces; None for a corpus of words."""
        return load_subwords(self.data_dir, self.metadata)

    def verify(self, *splits: str) -> None:
        """Verifies the checksums of the files of splits, and that their ids belong to the vocabulary.

        Each file is read once.

        Raises:
            ValueError: If a file is missing, is shorter or differs from the file that `prepare` wrote, or contains an
                id outside the vocabulary. The message names the first such file.
        """
        kinds = {"tokens": "vocabulary"} | ({} if self.merges_sha256 is None else {"words": "words"})
        files = [
            (path, facts["crc32"], self._dtype(kind), self.metadata[vocabulary]["size"])
            for split in splits
            for kind, vocabulary in kinds.items()
            for path, facts in self._shards(split, kind)
        ]
        with concurrent.futures.ThreadPoolExecutor() as threads:
            for _ in threads.map(lambda file: _verify(*file), files):
                pass

    def _read_ids(self, split, kind):
        dtype = self._dtype(kind)
        paths = [path for path, facts in self._shards(split, kind) if facts["bytes"]]
        tokens = [np.memmap(path, dtype, mode="r") for path in paths]
        return tokens[0] if len(tokens) == 1 else ShardedTokens(tokens)

    def _dtype(self, kind):
        metadata = self.metadata if kind == "tokens" else self.metadata[kind]
        return np.dtype(metadata["dtype"]).newbyteorder("<")

    def _shards(self, split, kind):
        """Returns the (path, facts) of the files of a split, and checks that they exist and have the right size."""
        if split not in SPLITS:
            raise ValueError(f"`split` must be one of {SPLITS}. Received: split={split!r}.")
        shards = self.metadata["splits"][split]["shards"][kind]
        shards = [(self.data_dir / shard["file"], shard) for shard in shards]
        for path, shard in shards:
            if not path.is_file():
                raise ValueError(f"{path} is missing. Put it back, or prepare the corpus again.")
            if (size := path.stat().st_size) != shard["bytes"]:
                raise ValueError(f"{path} must have {shard['bytes']} bytes. Received: {size}. Prepare it again.")
        return shards

    def _read_metadata(self):
        path = self.data_dir / "corpus.json"
        metadata = read_metadata(path) if path.is_file() else {}
        if "splits" not in metadata:  # the folder of a converted run, for example
            raise ValueError(f"{self.data_dir} holds no corpus. Make one with `python -m trainers.prepare`.")
        return metadata

    def _read_vocabulary(self, name, unknown):
        path = self.data_dir / f"{name}.txt"
        vocabulary = Vocabulary.load(path)
        if vocabulary.sha256 != self.metadata[name]["sha256"]:
            raise ValueError(f"{path} is not the vocabulary of these tokens. Prepare the corpus again.")
        if (size := self.metadata[name]["size"]) != len(vocabulary):
            raise ValueError(
                f"`{name}.size` of {self.data_dir / 'corpus.json'} must be {len(vocabulary)}, the number of words in "
                f"{path.name} and of special words. Received: {size}. Put the file back, or prepare the corpus again."
            )
        train = self.metadata["splits"]["train"]
        vocabulary.counts[[EOS, UNK]] = train["lines"], train[unknown]
        return vocabulary


def _verify(path, crc32, dtype, vocabulary_size):
    checksum, outside = 0, []
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
            ids = np.frombuffer(chunk, dtype)
            if ids.min() < 0 or ids.max() >= vocabulary_size:
                outside = outside or ids[(ids < 0) | (ids >= vocabulary_size)][:1].tolist()
    if crc32 != f"{checksum:08x}":
        raise ValueError(f"{path} has changed since it was made. Put it back, or prepare the corpus again.")
    if outside:
        raise ValueError(
            f"{path} must hold ids from 0 to {vocabulary_size - 1}. Received: {outside[0]}. Prepare the corpus again."
        )
