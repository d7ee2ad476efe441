import codecs
import functools
import hashlib
import itertools
import json
import os
import reprlib
from collections.abc import Iterable, Iterator

from keras_adaptive.data.codecs.characters import BYTES
from keras_adaptive.data.codecs.vocabulary import Vocabulary
from keras_adaptive.files import read_text, reading, writing
from keras_adaptive.special_words import SPECIAL_WORDS

_BATCH = 1 << 16  # number of words to cut at a time
_SPACE = "Ġ"  # symbol of the space, the beginning of every word


class Subwords:
    """Byte-pair encoding, which cuts every word into pieces that are frequent in the training text.

    A word is cut as GPT-2 cuts a word after a space. It is first divided where letters, digits and other marks meet.
    The bytes of each part are then merged, two neighbors at a time, in the order in which the merges were learned.
    Words outside the training text are cut too. Pieces are written in GPT-2's symbols, one per byte. `Ġ` is the space:
    the first piece of a word begins with it, and no other piece does. Each of the four special words is a piece.

    A file of merges has a line `left right` for each merge, in their order. Learning and cutting need the package
    `tokenizers`, and raise `ModuleNotFoundError` without it.

    Args:
        merges: List of pairs (left, right). Each part is the symbol of a byte or the result of an earlier merge.

    Attributes:
        merges: The list of merges.
        symbols: List of all pieces: the symbols of the bytes, followed by the results of the merges.

    Raises:
        ValueError: If a merge is not such a pair.

    Reference:
        Sennrich, Haddow and Birch, Neural Machine Translation of Rare Words with Subword Units, ACL 2016; on bytes:
        Radford et al., Language Models are Unsupervised Multitask Learners, 2019.

    Example:

    >>> subwords = Subwords.learn({"low": 5, "lower": 2, "slow": 2}, merges=3)
    >>> subwords.merges
    [('l', 'o'), ('lo', 'w'), ('Ġ', 'low')]
    >>> list(subwords.pieces(["lower", "slow", "</s>"]))
    [['Ġlow', 'e', 'r'], ['Ġ', 's', 'low'], ['</s>']]
    """

    def __init__(self, merges: Iterable[tuple[str, str]]) -> None:
        self.merges = [tuple(merge) for merge in merges]
        made = dict.fromkeys(BYTES)
        for number, merge in enumerate(self.merges, 1):
            if len(merge) != 2 or not all(part in made for part in merge):
                raise ValueError(
                    f"Merge {number} must have two pieces, each a byte's symbol or the result of an earlier merge. "
                    f"Received: {reprlib.repr(' '.join(merge))}."
                )
            made["".join(merge)] = None
        self.symbols = list(made)

    @classmethod
    def learn(cls, counts: dict[str, int], merges: int = 32_000) -> "Subwords":
        """Learns merges from the words of a text.

        Args:
            counts: Dict from words to their occurrences. Special words are ignored.
            merges: Number of merges to learn. Fewer are learned if no pair occurs twice.

        Raises:
            ValueError: If `merges` is below 1.
        """
        if merges < 1:
            raise ValueError(f"`merges` must be positive. Received: merges={merges}.")
        tokenizers = _import_tokenizers()
        tokenizer = _cutting_where_kinds_meet(tokenizers, tokenizers.models.BPE())
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=len(BYTES) + merges, min_frequency=2, initial_alphabet=list(BYTES), show_progress=False
        )
        tokenizer.train_from_iterator(_repeated(counts), trainer)
        return cls(json.loads(tokenizer.to_str())["model"]["merges"][:merges])

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Subwords":
        """Reads a file of merges that `save` wrote.

        Raises:
            ValueError: If the file is damaged.
        """
        with reading(path, "a file of merges", "Put it back, or prepare the corpus again."):
            text = read_text(path, errors="replace", newline="\n")
            return cls(line.split(" ") for line in text.removesuffix("\n").split("\n") if text)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the merges to a file, one per line."""
        with writing(path), open(path, "wb") as file:
            file.write(self._text())

    @property
    def sha256(self) -> str:
        """SHA-256 of the file that `save` writes."""
        return hashlib.sha256(self._text()).hexdigest()

    def pieces(self, words: Iterable[str]) -> Iterator[list[str]]:
        """Yields the list of the pieces of each word.

        Args:
            words: Iterable of words without white space, such as a tokenizer returns.

        Raises:
            ValueError: If a word is empty or contains white space.
        """
        words = iter(words)
        while batch := list(itertools.islice(words, _BATCH)):
            wrong = next((word for word in batch if word.split() != [word]), None)
            if wrong is not None:
                raise ValueError(f"`words` must be single words. Received: the word {wrong!r}. Split it first.")
            encodings = self._tokenizer.encode_batch_fast([f" {word}" for word in batch])
            for word, encoding in zip(batch, encodings, strict=True):
                yield [word] if word in SPECIAL_WORDS else [self.symbols[i] for i in encoding.ids]

    def vocabulary(self, counts: dict[str, int]) -> Vocabulary:
        """Returns the `Vocabulary` of all pieces, with their counts in a text whose words have these `counts`."""
        pieces = dict.fromkeys(self.symbols, 0)
        for count, parts in zip(counts.values(), self.pieces(counts), strict=True):
            for part in parts:
                pieces[part] = pieces.get(part, 0) + count
        return Vocabulary.from_counts(pieces, min_count=0)

    @functools.cached_property
    def _tokenizer(self):
        tokenizers = _import_tokenizers()
        ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        return _cutting_where_kinds_meet(tokenizers, tokenizers.models.BPE(vocab=ids, merges=self.merges))

    def _text(self):
        return "".join(f"{left} {right}\n" for left, right in self.merges).encode()


def begins_word(piece: str) -> bool:
    """Returns whether a word begins with this piece. The word ends before the next such piece.

    Example:

    >>> begins_word("Ġlow"), begins_word("er"), begins_word("</s>")
    (True, False, True)
    """
    return piece in SPECIAL_WORDS or piece.startswith(_SPACE)


def detokenize_subwords(pieces: Iterable[str]) -> Iterator[str]:
    """Yields the text of each piece, and a line break for `</s>`.

    A character whose bytes belong to several pieces is yielded with the last of them. Bytes that are not UTF-8, which a
    model may generate, become U+FFFD.

    Example:

    >>> "".join(detokenize_subwords(["Ġlow", "e", "r", "Ġc", "Ã", "©"]))
    ' lower cé'
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        if piece in SPECIAL_WORDS:
            yield decoder.decode(b"", final=True) + ("\n" if piece == "</s>" else f" {piece}")
        else:
            yield decoder.decode(piece_bytes(piece))
    yield decoder.decode(b"", final=True)


def piece_bytes(piece: str) -> bytes:
    """Returns the text of a piece in bytes. The text begins with a space if the piece begins a word."""
    return f" {piece}".encode() if piece in SPECIAL_WORDS else bytes(map(BYTES.__getitem__, piece))


def _cutting_where_kinds_meet(tokenizers, model):
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def _repeated(counts, limit=1000):
    """Yields strings that repeat each word as often as its count says, because the trainer takes only text."""
    for word, count in counts.items():
        if word not in SPECIAL_WORDS:
            for start in range(0, count, limit):
                yield f" {word}" * min(limit, count - start)


def _import_tokenizers():
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Sub-words need the package tokenizers: pip install tokenizers") from None
    return tokenizers
