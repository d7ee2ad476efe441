import array
import hashlib
import itertools
import json
import os
from collections import defaultdict
from pathlib import Path

import numpy as np

from keras_adaptive.data.corpus import SPLITS, Corpus
from keras_adaptive.data.folders import complete_or_absent
from keras_adaptive.data.subwords import Subwords
from keras_adaptive.data.text import read_words
from keras_adaptive.data.vocabulary import EOS, UNK, Vocabulary
from keras_adaptive.data.words import TOKENIZERS

_CHUNK = 1 << 18  # tokens in memory at a time
_NAMES = ("{}.txt", "wiki.{}.tokens")


def prepare(
    folder, data_dir, tokenizer="whitespace", min_count=3, source=None, subwords=0, check=None, vocabulary=None
):
    """Turns the text files of a folder into a corpus: token ids on disk and their vocabulary.

    The text is streamed, so memory holds the distinct words and little else. Each line ends with `</s>`,
    blank lines too; words rarer than `min_count` in `train` become `<unk>`, as a literal `<unk>` does.
    `data_dir` appears complete or not at all. A corpus already there that came from the same text in the same
    way is kept; anything else there is refused.

    Args:
        folder: has `train.txt`, `valid.txt` and `test.txt` (or WikiText's `wiki.train.tokens`, …), UTF-8.
        data_dir: folder to make; `Corpus` says what it holds.
        tokenizer: "whitespace" for text that is tokenised already, "words" for raw text (`tokenize`).
        min_count: occurrences that a word needs in `train`. WikiText and Billion Word were published with 3;
            with 1, raw text has no `<unk>` to learn.
        source: what `corpus.json` gives as the source; the folder by default.
        subwords: 0 makes a corpus of words. Otherwise its units are the pieces of a byte-pair encoding with so
            many merges, learned on `train` (`Subwords`); no piece is too rare, and `min_count` is for the words,
            whose counts a corpus of pieces has too.
        vocabulary: a `Vocabulary` to take instead of that of `train`, such as that of a published model; every other
            word becomes `<unk>`, and `min_count` does not matter.
        check: called with the finished `Corpus` before `data_dir` appears; if it raises, nothing stays.

    Returns:
        The `Corpus`.

    Raises:
        ValueError: if a file is missing, empty or not UTF-8, or `data_dir` holds something else; and whatever
            `check` raises.
        ModuleNotFoundError: if sub-words are asked for and `tokenizers` is not installed.
    """
    if subwords < 0:
        raise ValueError(f"`subwords` must be a number of merges, or 0 for words. Received: {subwords}")
    if tokenizer not in TOKENIZERS:
        raise ValueError(f"`tokenizer` must be one of {list(TOKENIZERS)}. Received: {tokenizer!r}")
    if subwords and vocabulary is not None:
        raise ValueError("A corpus of sub-words makes its own vocabulary: pass `subwords` or `vocabulary`, not both.")
    texts = {split: _find(folder, split) for split in SPLITS}
    recipe = {"tokenizer": tokenizer, "unit": "sub-word" if subwords else "word", "min_count": min_count}
    if subwords:
        recipe["subwords"] = subwords
    if vocabulary is not None:
        recipe |= {"min_count": None, "dictionary": vocabulary.sha256}
    inputs = {split: _identity(path) for split, path in texts.items()}
    if not _is_free(data_dir):
        return _existing(data_dir, recipe, inputs, check)
    with complete_or_absent(data_dir) as new:
        if subwords:
            contents = _write_subword_corpus(texts, new, TOKENIZERS[tokenizer], min_count, subwords)
        else:
            contents = _write_corpus(texts, new, TOKENIZERS[tokenizer], min_count, vocabulary)
        splits = {split: inputs[split] | contents["splits"][split] for split in SPLITS}
        metadata = {"source": str(source or folder), **recipe, **contents, "splits": splits}
        (new / "corpus.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
        if check:
            check(Corpus(new))
    return Corpus(data_dir)


def _find(folder, split):
    paths = [Path(folder, name.format(split)) for name in _NAMES]
    path = next(filter(Path.is_file, paths), None)
    if path is None:
        raise ValueError(f"{paths[0]} is missing. A folder needs train.txt, valid.txt and test.txt.")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty. It must hold text, a paragraph or a sentence a line.")
    return path


def _identity(path):
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _is_free(data_dir):
    return not os.path.exists(data_dir) or os.path.isdir(data_dir) and not os.listdir(data_dir)


def _existing(data_dir, recipe, inputs, check):
    """Returns the corpus in `data_dir` if it is what `prepare` would write."""
    if os.path.exists(os.path.join(data_dir, "corpus.json")):
        corpus = Corpus(data_dir)
        splits = corpus.metadata["splits"]
        same_text = all(inputs[split].items() <= splits[split].items() for split in SPLITS)
        if same_text and recipe.items() <= corpus.metadata.items():
            if check:
                check(corpus)
            return corpus
    raise ValueError(f"{data_dir} exists and is not this corpus. Remove it, or choose another data_dir.")


def _write_corpus(texts, folder, tokenize, min_count, vocabulary):
    """Writes the vocabulary and the tokens of every split; returns what `corpus.json` says about them.

    Looking words up takes most of the time. So the words of `train` are looked up once, numbered as they
    appear, and the numbers become ids when all words are counted.
    """
    numbers = folder / "numbers"
    counts = _number_words(read_words(texts["train"], tokenize), numbers)
    vocabulary = Vocabulary.from_counts(counts, min_count) if vocabulary is None else vocabulary
    vocabulary.save(folder / "vocabulary.txt")
    ids = vocabulary.encode(list(counts))
    chunks = {"train": (ids[chunk] for chunk in _read_numbers(numbers))}
    for split in SPLITS[1:]:
        chunks[split] = map(vocabulary.encode, read_words(texts[split], tokenize))
    dtype = _dtype(vocabulary)
    splits = {split: _write_tokens(chunks[split], folder / f"{split}.tokens", dtype) for split in SPLITS}
    numbers.unlink()
    return {"vocabulary": _facts(vocabulary), "dtype": dtype, "splits": splits}


def _write_subword_corpus(texts, folder, tokenize, min_count, merges):
    """As `_write_corpus`, for pieces: also writes the merges, and the words of every split with their vocabulary.

    The words of every split are numbered, so that each distinct word is cut once, whatever its occurrences.
    """
    numbers = {split: folder / f"{split}.numbers" for split in SPLITS}
    counts = {split: _number_words(read_words(texts[split], tokenize), numbers[split]) for split in SPLITS}
    words = Vocabulary.from_counts(counts["train"], min_count)
    subwords = Subwords.learn(counts["train"], merges)
    vocabulary = subwords.vocabulary(counts["train"])
    words.save(folder / "words.txt")
    subwords.save(folder / "merges.txt")
    vocabulary.save(folder / "vocabulary.txt")
    dtype, words_dtype = _dtype(vocabulary), _dtype(words)
    splits = {}
    for split in SPLITS:
        ids, starts = _cut(counts[split], subwords, vocabulary)
        word_ids = words.encode(list(counts[split]))
        pieces = (_gather(chunk, ids, starts) for chunk in _read_numbers(numbers[split]))
        in_words = (word_ids[chunk] for chunk in _read_numbers(numbers[split]))
        splits[split] = _write_tokens(pieces, folder / f"{split}.tokens", dtype)
        facts = _write_tokens(in_words, folder / f"{split}.words", words_dtype)
        splits[split] |= {"words": facts["tokens"], "unknown_words": facts["unknown"]}
        numbers[split].unlink()
    return {
        "vocabulary": _facts(vocabulary),
        "merges": {"number": len(subwords.merges), "sha256": subwords.sha256},
        "words": _facts(words) | {"dtype": words_dtype},
        "dtype": dtype,
        "splits": splits,
    }


def _dtype(vocabulary):
    return "uint16" if len(vocabulary) < 1 << 16 else "int32"


def _facts(vocabulary):
    return {"size": len(vocabulary), "sha256": vocabulary.sha256}


def _cut(words, subwords, vocabulary):
    """Returns the ids of the pieces of all words, one behind the other, and where each word's start, and the end."""
    ids, lengths = array.array("i"), array.array("i")
    for pieces in subwords.pieces(words):
        ids.frombytes(vocabulary.encode(pieces).tobytes())
        lengths.append(len(pieces))
    return np.frombuffer(ids, np.int32), np.append(0, np.cumsum(lengths))


def _gather(numbers, ids, starts):
    """Returns the ids of the pieces of a text, given as the numbers of its words."""
    lengths = np.diff(starts)[numbers]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return ids[np.repeat(starts[numbers], lengths) + within]


def _number_words(chunks, path):
    """Writes words as numbers in the order of their first appearance; returns how often each occurs."""
    numbers = defaultdict(itertools.count().__next__)
    with open(path, "wb") as file:
        for words in chunks:
            np.fromiter(map(numbers.__getitem__, words), np.int32, len(words)).tofile(file)
    counts = sum(np.bincount(chunk, minlength=len(numbers)) for chunk in _read_numbers(path))
    return dict(zip(numbers, counts.tolist(), strict=True))


def _read_numbers(path):
    with open(path, "rb") as file:
        while len(chunk := np.fromfile(file, np.int32, _CHUNK)):
            yield chunk


def _write_tokens(chunks, path, dtype):
    tokens = lines = unknown = 0
    with open(path, "wb") as file:
        for ids in chunks:
            ids.astype(np.dtype(dtype).newbyteorder("<")).tofile(file)
            tokens += len(ids)
            lines += np.count_nonzero(ids == EOS)
            unknown += np.count_nonzero(ids == UNK)
    return {"tokens": tokens, "lines": int(lines), "unknown": int(unknown), "unknown_share": unknown / tokens}
