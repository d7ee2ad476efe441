"""Writes the files of a corpus from the indexed words of its texts."""

import array
import functools
import itertools
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np

from keras_adaptive.data.codecs.subwords import Subwords
from keras_adaptive.data.codecs.vocabulary import Vocabulary
from keras_adaptive.data.metadata import SPLITS
from keras_adaptive.data.preparation.word_index import read_distinct, read_numbers
from keras_adaptive.special_words import EOS, UNK


def write_word_corpus(parts, folder, mapped, min_count, max_words, vocabulary, inspect):
    """Writes the vocabulary and the tokens of every split, and returns their entries in `corpus.json`.

    The `parts` of a split are the folders that `index_words` wrote, each of which becomes a shard. Without a
    `vocabulary`, it is made of the words of `train`, of which the function `inspect` gets the occurrences.
    """
    words, counts = _merge(parts)
    inspect(counts)
    if vocabulary is None:
        vocabulary = Vocabulary.from_counts(counts, min_count, max_words=max_words)
    vocabulary.save(folder / "vocabulary.txt")
    ids = vocabulary.encode(words)
    del words, counts
    dtype = _dtype(vocabulary)

    tokens = functools.partial(_look_up, ids)
    splits = {split: _write_shards(tokens, parts[split], folder, split, "tokens", dtype, mapped) for split in SPLITS}
    return {"vocabulary": _facts(vocabulary), "dtype": dtype, "splits": splits}


def write_subword_corpus(parts, folder, mapped, min_count, max_words, merges):
    """Writes a corpus of sub-words: the files of `write_word_corpus`, the merges, and the words and their vocabulary.

    Each distinct word of all texts is cut once.
    """
    words, counts = _merge(parts)
    subwords = Subwords.learn(counts, merges)
    vocabulary = subwords.vocabulary(counts)
    word_vocabulary = Vocabulary.from_counts(counts, min_count, max_words=max_words)
    word_vocabulary.save(folder / "words.txt")
    subwords.save(folder / "merges.txt")
    vocabulary.save(folder / "vocabulary.txt")
    ids, starts = _cut(words, subwords, vocabulary)
    word_ids = word_vocabulary.encode(words)
    del words, counts
    dtype, words_dtype = _dtype(vocabulary), _dtype(word_vocabulary)

    def pieces(part):
        merged = _read_merged(part)
        return (_gather(merged[chunk], ids, starts) for chunk in read_numbers(part))

    in_words = functools.partial(_look_up, word_ids)
    splits = {}
    for split in SPLITS:
        splits[split] = _write_shards(pieces, parts[split], folder, split, "tokens", dtype, mapped)
        facts = _write_shards(in_words, parts[split], folder, split, "words", words_dtype, mapped)
        splits[split] |= {"words": facts["tokens"], "unknown_words": facts["unknown"]}
        splits[split]["shards"] |= facts["shards"]
    return {
        "vocabulary": _facts(vocabulary),
        "merges": {"number": len(subwords.merges), "sha256": subwords.sha256},
        "words": _facts(word_vocabulary) | {"dtype": words_dtype},
        "dtype": dtype,
        "splits": splits,
    }


def _merge(parts):
    """Numbers all distinct words, and returns them in the order of their numbers with their counts in `train`.

    The numbers of the words of a part are written into its folder, as `merged`.
    """
    numbers = defaultdict(itertools.count().__next__)
    counts = np.zeros(0, np.int64)
    for split in SPLITS:
        for part in parts[split]:
            words, part_counts = read_distinct(part)
            merged = np.fromiter(map(numbers.__getitem__, words), np.int32, len(words))
            merged.tofile(part / "merged")
            if split == "train":
                counts = np.pad(counts, (0, len(numbers) - len(counts)))
                counts[merged] += part_counts
    words = list(numbers)
    return words, dict(zip(words, counts.tolist()))


def _read_merged(part):
    return np.fromfile(part / "merged", np.int32)


def _look_up(ids, part):
    """Yields chunks of the ids of the words of a part. `ids` holds one id per distinct word."""
    part_ids = ids[_read_merged(part)]
    return (part_ids[chunk] for chunk in read_numbers(part))


def _dtype(vocabulary):
    return "uint16" if len(vocabulary) < 1 << 16 else "int32"


def _facts(vocabulary):
    return {"size": len(vocabulary), "sha256": vocabulary.sha256}


def _cut(words, subwords, vocabulary):
    """Returns the ids of the pieces of all words, concatenated, and the starts of the words, followed by the end."""
    ids, lengths = array.array("i"), array.array("i")
    for pieces in subwords.pieces(words):
        ids.frombytes(vocabulary.encode(pieces).tobytes())
        lengths.append(len(pieces))
    return np.frombuffer(ids, np.int32), np.append(0, np.cumsum(lengths))


def _gather(numbers, ids, starts):
    """Returns the ids of the pieces of a text from the numbers of its words."""
    lengths = starts[numbers + 1] - starts[numbers]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return ids[np.repeat(starts[numbers], lengths) + within]


def _write_shards(tokens, parts, folder, split, kind, dtype, mapped):
    """Writes `tokens(part)`, chunks of ids, for every part, and returns the entry of the split in `corpus.json`."""
    names = [f"{split}-{number:05d}-of-{len(parts):05d}.{kind}" for number in range(len(parts))]
    paths = [Path(folder, name) for name in (names if parts[1:] else [f"{split}.{kind}"])]
    shards = list(mapped(lambda part, path: _write_shard(tokens(part), path, dtype), parts, paths))
    facts = {name: sum(shard[name] for shard in shards) for name in ("tokens", "lines", "unknown")}
    return facts | {"unknown_share": facts["unknown"] / facts["tokens"], "shards": {kind: shards}}


def _write_shard(chunks, path, dtype):
    tokens = lines = unknown = checksum = 0
    with open(path, "wb") as file:
        for ids in chunks:
            encoded = ids.astype(np.dtype(dtype).newbyteorder("<"))
            encoded.tofile(file)
            checksum = zlib.crc32(encoded, checksum)
            tokens += len(ids)
            lines += np.count_nonzero(ids == EOS)
            unknown += np.count_nonzero(ids == UNK)
    facts = {"tokens": tokens, "lines": int(lines), "unknown": int(unknown)}
    return {"file": path.name, "bytes": path.stat().st_size, "crc32": f"{checksum:08x}"} | facts
