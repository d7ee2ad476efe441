"""Contents of `corpus.json`. Every field is checked when the file is read, because it may come from anywhere."""

import json
import os
import re
import reprlib

import numpy as np

from keras_adaptive.data.codecs.units import NAMES, units_of
from keras_adaptive.data.codecs.words import RULES, TOKENIZERS
from keras_adaptive.fields import TEXT, Field, number, one_of, or_null, whole
from keras_adaptive.files import read_text, reading

SPLITS = ("train", "valid", "test")
DTYPES = ("uint16", "int32")  # types of token ids that `prepare` writes
_MOST_BYTES = 1 << 20  # largest number of bytes of text per token, far more than words and their spaces have


def _is_file_name(value):
    return isinstance(value, str) and re.fullmatch(r"[^/\\:\0]+", value) and value not in (".", "..")


def _is_hexadecimal(digits):
    return lambda value: isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", value)


COUNT, POSITIVE, SHARE = whole(0), whole(1), number(0, 1)
FILE = Field("the name of a file in the folder of the corpus", _is_file_name)
SHA256 = Field("64 hexadecimal digits", _is_hexadecimal(64))
CRC32 = Field("8 hexadecimal digits", _is_hexadecimal(8))
DTYPE = one_of(*DTYPES)
RULE = Field(f"{RULES}, the version of a rule", lambda value: type(value) is int and value == RULES)
SHARDS = Field("a list of at least one shard", lambda value: isinstance(value, list) and value)

VOCABULARY = {"size": COUNT, "sha256": SHA256}
RUN = {  # fields of a converted run
    "tokenizer": one_of(*TOKENIZERS),
    "unit": one_of(*NAMES),
    "vocabulary": VOCABULARY,
}
MIN_COUNT = or_null(COUNT)
SIZES = ("bytes", "text_bytes")  # of the file, and of its text with one byte for each end of a line
SPLIT = {
    **{"tokens": COUNT, "lines": COUNT, "unknown": COUNT, "unknown_share": SHARE, "sha256": SHA256},
    **dict.fromkeys(SIZES, POSITIVE),
    "shards": {"tokens": SHARDS},
}
SHARD = {"file": FILE, "bytes": COUNT, "crc32": CRC32}
CORPUS = {"source": TEXT, "min_count": MIN_COUNT, "dtype": DTYPE, "splits": dict.fromkeys(SPLITS, SPLIT)}
MERGES = {"number": COUNT, "sha256": SHA256}
OF_SUBWORDS = {
    "merges": MERGES,
    "words": {**VOCABULARY, "dtype": DTYPE},
    "splits": dict.fromkeys(SPLITS, {"words": COUNT, "unknown_words": COUNT, "shards": {"words": SHARDS}}),
}


def read_metadata(path: str | os.PathLike) -> dict:
    """Reads a `corpus.json` and checks every field that the package uses.

    Args:
        path: Path of the file in the folder of a corpus or of a run. The file of a converted run has only a tokenizer,
            a unit and a vocabulary.

    Returns:
        The contents, a dict. `unit` is a `Unit`.

    Raises:
        ValueError: If the file is not JSON, or a field is missing or differs from what `prepare` writes. The message
            names the file, the field and the expected value.

    Example:

    ```python
    metadata = read_metadata("data/books/corpus.json")
    metadata["vocabulary"]["size"], metadata["splits"]["train"]["tokens"]
    ```
    """
    with reading(path, "a file of JSON", "Put it back, or prepare the corpus again."):
        metadata = json.loads(read_text(path))
    _check(path, "", metadata, RUN)
    if metadata["tokenizer"] == "words" or "rules" in metadata:
        _check(path, "", metadata, {"rules": RULE})
    units = units_of(metadata["tokenizer"])
    if metadata["unit"] not in units:
        raise _wrong(path, "unit", metadata["unit"], f"{' or '.join(units)}, according to `tokenizer`")
    metadata["unit"] = NAMES[metadata["unit"]]
    if "merges" in metadata:
        _check(path, "merges", metadata["merges"], MERGES)
    if metadata.keys() & {"dtype", "splits"}:
        _check(path, "", metadata, CORPUS)
        if metadata["unit"].is_piece:
            _check(path, "", metadata, OF_SUBWORDS)
        for split in SPLITS:
            _check_counts(path, f"splits.{split}", metadata["splits"][split])
            _check_shards(path, f"splits.{split}", metadata["splits"][split], metadata)
    return metadata


def _check_counts(path, name, split):
    """Checks the counts of a split against its number of tokens. Each line and each word has at least one token."""
    for key in ("lines", "unknown", "words", "unknown_words"):
        if split.get(key, 0) > split["tokens"]:
            raise _wrong(path, f"{name}.{key}", split[key], f"at most {split['tokens']:,}, the number of tokens")
    most = _MOST_BYTES * split["tokens"]
    for key in SIZES:
        if split[key] > most:
            raise _wrong(path, f"{name}.{key}", split[key], f"at most {most:,}, a megabyte per token")


def _check_shards(path, name, split, metadata):
    """Checks the shards of a split."""
    for kind, shards in split["shards"].items():
        place = f"{name}.shards.{kind}"
        if kind not in ("tokens", "words") or kind == "words" and not metadata["unit"].is_piece:
            raise _wrong(path, place, kind, "tokens, or words in a corpus of sub-words")
        for index, shard in enumerate(shards):
            _check(path, f"{place}.{index}", shard, SHARD)
        itemsize = np.dtype((metadata if kind == "tokens" else metadata["words"])["dtype"]).itemsize
        size = sum(shard["bytes"] for shard in shards)
        if size != split[kind] * itemsize:
            expected = f"{split[kind]:,} {kind} of {itemsize} bytes, according to `{name}.{kind}`"
            raise _wrong(path, f"{place}.bytes", size, expected)


def _check(path, name, value, expected):
    """Checks a value against a `Field`, or the values of a dict against a dict of fields."""
    if isinstance(expected, Field):
        if not expected.holds(value):
            raise _wrong(path, name, value, expected.expected)
        return
    if not isinstance(value, dict):
        raise _wrong(path, name, value, "an object")
    for key, field in expected.items():
        place = f"{name}.{key}".removeprefix(".")
        if key not in value:
            raise ValueError(f"{path} has no `{place}`. Put the file back, or prepare the corpus again.")
        _check(path, place, value[key], field)


def _wrong(path, name, value, expected):
    where = f"`{name}` of {path}" if name else str(path)
    return ValueError(
        f"{where} must be {expected}. Received: {reprlib.repr(value)}. Put the file back, or prepare the corpus again."
    )
