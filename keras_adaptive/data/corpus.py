import json
from pathlib import Path

import numpy as np

from keras_adaptive.data.vocabulary import EOS, UNK, Vocabulary

SPLITS = ("train", "valid", "test")


def load_corpus(data_dir):
    """Opens the corpus that `prepare` wrote into `data_dir`."""
    return Corpus(data_dir)


class Corpus:
    """A text as token ids on disk, with its vocabulary: what training and evaluation read.

    The folder holds `train.tokens`, `valid.tokens` and `test.tokens` (raw little-endian integers),
    `vocabulary.txt` and `corpus.json`. Nothing is read into memory but the vocabulary.

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
        self.vocabulary = self._read_vocabulary()

    def tokens(self, split):
        """Returns the ids of "train", "valid" or "test": one memory-mapped stream, `</s>` ends each line."""
        if split not in SPLITS:
            raise ValueError(f"`split` must be one of {SPLITS}. Received: {split!r}")
        path = self.data_dir / f"{split}.tokens"
        dtype = np.dtype(self.metadata["dtype"]).newbyteorder("<")
        expected = self.metadata["splits"][split]["tokens"] * dtype.itemsize
        size = path.stat().st_size
        if size != expected:
            raise ValueError(f"{path} must have {expected} bytes. Received: {size}. Prepare the corpus anew.")
        return np.memmap(path, dtype, mode="r")

    def _read_metadata(self):
        path = self.data_dir / "corpus.json"
        if not path.is_file():
            raise ValueError(f"{self.data_dir} holds no corpus. Make one with scripts/prepare_corpus.py.")
        return json.loads(path.read_text(encoding="utf-8"))

    def _read_vocabulary(self):
        path = self.data_dir / "vocabulary.txt"
        vocabulary = Vocabulary.load(path)
        if vocabulary.sha256 != self.metadata["vocabulary"]["sha256"]:
            raise ValueError(f"{path} is not the vocabulary of these tokens. Prepare the corpus anew.")
        train = self.metadata["splits"]["train"]
        vocabulary.counts[[EOS, UNK]] = train["lines"], train["unknown"]
        return vocabulary
