import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from keras_adaptive.data.codecs.lines import split_lines
from keras_adaptive.data.codecs.subwords import Subwords
from keras_adaptive.data.codecs.units import UNITS, unit_of
from keras_adaptive.data.codecs.vocabulary import Vocabulary
from keras_adaptive.data.codecs.words import TOKENIZERS
from keras_adaptive.data.metadata import read_metadata


class TextCodec:
    """Converts text to the tokens and ids of a trained model or a corpus, and back.

    Args:
        vocabulary: The `Vocabulary` of the tokens.
        tokenizer: Name of the tokenizer that splits lines, in `TOKENIZERS`.
        subwords: The `Subwords` that cut words into pieces; `None` if the tokens are words, characters or bytes.

    Attributes:
        unit: Unit of the tokens: `"word"`, `"sub-word"`, `"character"` or `"byte"`.

    Raises:
        ValueError: If `tokenizer` is unknown, or if it returns characters or bytes, which sub-words cannot cut.

    Example:

    >>> codec = TextCodec(Vocabulary.from_counts({"the": 9, "cat": 2}))
    >>> tokens = codec.tokenize("the  cat purrs")
    >>> codec.encode(tokens)
    array([4, 5, 3], dtype=int32)
    >>> "".join(codec.detokenize(tokens))
    ' the cat purrs'
    """

    def __init__(self, vocabulary: Vocabulary, tokenizer: str = "whitespace", subwords: Subwords | None = None) -> None:
        if tokenizer not in TOKENIZERS or (subwords is not None and tokenizer in UNITS):
            names = [name for name in TOKENIZERS if subwords is None or name not in UNITS]
            raise ValueError(f"`tokenizer` must be one of {', '.join(names)}. Received: tokenizer={tokenizer!r}.")
        self.vocabulary = vocabulary
        self.tokenizer = tokenizer
        self.subwords = subwords
        self.unit = unit_of(tokenizer, subwords is not None)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "TextCodec":
        """Reads the codec of a run or a corpus from `vocabulary.txt`, `corpus.json` and, for sub-words, `merges.txt`.

        Raises:
            ValueError: If a file is missing or damaged, or the files do not belong together.
        """
        for name in ("vocabulary.txt", "corpus.json"):
            if not Path(folder, name).is_file():
                raise ValueError(f"{folder} holds no run ({name} is missing): pass the folder of a trained model.")
        metadata = read_metadata(Path(folder, "corpus.json"))
        return cls(load_vocabulary(folder, metadata), metadata["tokenizer"], load_subwords(folder, metadata))

    @property
    def keeps_mark(self) -> bool:
        """Whether a byte order mark at the beginning of a text is part of the text, as in training."""
        return self.tokenizer == "bytes"

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of a text, with `</s>` for each line break between two lines (`split_lines`).

        The last line is not ended: a model that scores it adds a `</s>`.
        """
        first, *others = map(self.tokenize_part, split_lines(text))
        return [*first, *(token for line in others for token in ("</s>", *line))]

    def tokenize_part(self, text: str) -> list[str]:
        """Returns the tokens of a part of a line, in which no character is taken for the end of a line."""
        return [token for tokens in self.cut(TOKENIZERS[self.tokenizer](text)) for token in tokens]

    def cut(self, words: Iterable[str]) -> Iterable[list[str]]:
        """Yields the tokens of each word, character or byte that the tokenizer returns: its pieces, or itself."""
        return ([word] for word in words) if self.subwords is None else self.subwords.pieces(words)

    def encode(self, tokens: Iterable[str], extra: Sequence[str] = ()) -> np.ndarray:
        """Returns the ids of tokens, int32 (tokens,). Tokens outside the vocabulary get the id of `<unk>`.

        The words `extra` are outside the vocabulary, and their ids follow it, as `LanguageModel.for_inference` expects.
        """
        return self.vocabulary.encode(tokens, extra)

    def decode(self, ids: ArrayLike) -> list[str]:
        """Returns the list of the tokens of ids (tokens,)."""
        return self.vocabulary.decode(ids)

    def detokenize(self, tokens: Iterable[str], begins_line: bool = False) -> Iterator[str]:
        """Yields the text of each token, with the space before it, and a line break for `</s>`.

        The first word of a line has no space before it; `begins_line` is whether the tokens begin a line.
        A character whose bytes belong to several tokens is yielded with the last of them. Bytes that are not UTF-8
        become U+FFFD. For sub-words and bytes, a further string follows the last token: U+FFFD for an incomplete
        character, or an empty string.
        """
        return self.unit.detokenize(tokens, begins_line)

    def shown(self, token: str) -> str:
        """Returns a token as programs print it. Characters and bytes are quoted."""
        return self.unit.shown(token)

    def count_words(self, tokens: Iterable[str]) -> int:
        """Returns the number of words in tokens. Each character or byte counts as a word."""
        return sum(map(self.unit.begins_word, tokens))


def load_vocabulary(folder: str | os.PathLike, metadata: dict) -> Vocabulary:
    """Reads `vocabulary.txt` of the folder of a run, whose `metadata` `read_metadata` returns.

    Raises:
        ValueError: If `vocabulary.txt` differs from the vocabulary that `metadata` describes.

    Example:

    ```python
    vocabulary = load_vocabulary("runs/books", read_metadata("runs/books/corpus.json"))
    ```
    """
    path = Path(folder, "vocabulary.txt")
    vocabulary = Vocabulary.load(path)
    if metadata["vocabulary"]["sha256"] != vocabulary.sha256:
        raise ValueError(f"{path} is not the vocabulary of this run any more: put the right file back.")
    return vocabulary


def load_subwords(folder: str | os.PathLike, metadata: dict) -> Subwords | None:
    """Reads `merges.txt` of the folder of a corpus or a run, whose `metadata` `read_metadata` returns.

    Returns `None` if the unit of the tokens is not the sub-word.

    Raises:
        ValueError: If `merges.txt` differs from the merges that `metadata` describes.

    Example:

    ```python
    subwords = load_subwords("data/books_bpe", read_metadata("data/books_bpe/corpus.json"))
    ```
    """
    if not metadata["unit"].is_piece:
        return None
    path = Path(folder, "merges.txt")
    subwords = Subwords.load(path)
    if subwords.sha256 != metadata.get("merges", {}).get("sha256"):
        raise ValueError(f"{path} holds the merges of another corpus. Put the right file back, or prepare it again.")
    return subwords
