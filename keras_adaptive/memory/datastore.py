"""Folders of keys and of the words that followed them, which are written shard by shard and read by memory mapping."""

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_adaptive.fields import TEXT, Field, whole
from keras_adaptive.files import alone, commit, partial, read_text, reading, write_json, writing
from keras_adaptive.memory.index import read_index, write_index

FACTS = "memory.json"
LOCK = "lock"
FORMAT = 1
SHARD = 2**18  # keys of a shard
FIELDS = {
    "format": whole(FORMAT, FORMAT),
    "dim": whole(1, 2**20),
    "tokens": whole(1),
    "model": TEXT,
    "vocabulary": TEXT,
    "text": TEXT,
    "read": TEXT,
    "shards": Field("a list of shards", lambda value: isinstance(value, list)),
}
INDEX = "index.faiss"
INDEX_FIELDS = {"kind": TEXT, "crc32": whole(0, 2**32 - 1)}
SHARD_FIELDS = {"rows": whole(1), "crc32": whole(0, 2**32 - 1)}
IDENTITY = {"model": "model", "vocabulary": "vocabulary", "text": "text", "read": "way of reading"}


def read_facts(folder: str | os.PathLike) -> dict[str, Any]:
    """Returns the contents of `memory.json` after checking them."""
    path = Path(folder, FACTS)
    if not path.is_file():
        raise ValueError(f"{folder} holds no memory ({FACTS} is missing): make one with `keras-adaptive remember`.")
    with reading(path, "the description of a memory", "Make the memory again."):
        facts = json.loads(read_text(path))
        _check(facts, FIELDS)
        for shard in facts["shards"]:
            _check(shard, SHARD_FIELDS)
        return facts


def _check(value, fields):
    if not isinstance(value, dict):
        raise ValueError("it must hold objects")
    for name, field in fields.items():
        if name not in value or not field.holds(value[name]):
            raise ValueError(f"{name} must be {field.expected}")


def write_shards(folder: str | os.PathLike, facts: dict[str, Any], parts: Any) -> None:
    """Writes the keys and words of a text, or what is missing of them after an interruption.

    Args:
        folder: Folder to write, a new one or one that an earlier call with the same `facts` has begun.
        facts: The fields of `memory.json` except its format and shards.
        parts: Function from the number of tokens that are kept to an iterator of `(keys, ids)` of those after them,
            (rows, dim) and (rows,). An item becomes a shard.

    Raises:
        ValueError: If the folder holds another memory, or a key is too large for float16.
    """
    facts = {"format": FORMAT, **facts, "shards": []}
    _check(facts, FIELDS)
    if Path(folder, FACTS).exists():
        begun = read_facts(folder)
        if other := [what for name, what in IDENTITY.items() if begun[name] != facts[name]]:
            raise ValueError(f"{folder} holds the memory of another {' and another '.join(other)}: pass a new folder.")
        facts["shards"] = begun["shards"]
    elif Path(folder).exists() and (not Path(folder).is_dir() or set(os.listdir(folder)) - {LOCK}):
        raise ValueError(f"{folder} exists and holds no memory: pass a new folder.")
    else:
        Path(folder).mkdir(parents=True, exist_ok=True)
    with alone(folder, Path(folder, LOCK)):
        _write_missing(folder, facts, parts)


def _write_missing(folder, facts, parts):
    if not facts["shards"]:
        write_json(Path(folder, FACTS), facts)
    for keys, ids in parts(sum(shard["rows"] for shard in facts["shards"])):
        with np.errstate(over="ignore"):
            narrow = keys.astype("float16")
        if not np.isfinite(narrow).all():
            raise ValueError(
                f"The keys of a memory must be finite in float16. Received: numbers up to {np.abs(keys).max():.3g}."
            )
        arrays, number = (narrow, ids.astype("int32")), len(facts["shards"])
        for path, array in zip(_paths(folder, number), arrays):
            with writing(path):
                with open(partial(path), "wb") as file:
                    np.save(file, array)
                commit(path)
        facts["shards"].append({"rows": len(ids), "crc32": _checksum(*arrays)})
        write_json(Path(folder, FACTS), facts)  # last: a shard that is not listed is written again


def read_shards(folder: str | os.PathLike, facts: dict[str, Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields `(keys, ids)` of each shard, memory-mapped, after checking that they are whole."""
    kept = sum(shard["rows"] for shard in facts["shards"])
    if kept != facts["tokens"]:
        raise ValueError(
            f"{folder} holds {kept:,} of {facts['tokens']:,} tokens: run the command that makes it again to go on."
        )
    for number, shard in enumerate(facts["shards"]):
        arrays = []
        shapes = [(shard["rows"], facts["dim"]), (shard["rows"],)]
        for path, shape, dtype in zip(_paths(folder, number), shapes, ("float16", "int32")):
            with reading(path, "a shard of a memory", "Remove the folder and make the memory again."):
                array = np.load(path, mmap_mode="r", allow_pickle=False)
                if array.shape != shape or array.dtype != dtype:
                    raise ValueError(f"it must hold {dtype} {shape}")
                arrays.append(array)
        if _checksum(*arrays) != shard["crc32"]:
            raise ValueError(
                f"{_paths(folder, number)[0]} or the words beside it are damaged: remove the folder and make it again."
            )
        yield tuple(arrays)


def write_its_index(folder: str | os.PathLike, kind: str | None) -> None:
    """Writes an index of faiss beside the shards, or removes it if `kind` is `None`. Tuned settings are dropped."""
    facts = {name: value for name, value in read_facts(folder).items() if name not in ("index", "settings")}
    write_json(Path(folder, FACTS), facts)
    if kind is None:
        Path(folder, INDEX).unlink(missing_ok=True)
        return
    checksum = write_index(Path(folder, INDEX), list(read_shards(folder, facts)), kind)
    write_json(Path(folder, FACTS), {**facts, "index": {"kind": kind, "crc32": checksum}})


def read_its_index(folder: str | os.PathLike, facts: dict[str, Any]) -> Any:
    """Returns the index of faiss that `write_its_index` wrote, or `None`."""
    if (described := facts.get("index")) is None:
        return None
    with reading(Path(folder, FACTS), "the description of a memory", "Make the memory again."):
        _check(described, INDEX_FIELDS)
    return read_index(Path(folder, INDEX), described["crc32"], facts["dim"], facts["tokens"])


def _paths(folder, number):
    return Path(folder, f"keys_{number:05}.npy"), Path(folder, f"words_{number:05}.npy")


def _checksum(keys, ids):
    return zlib.crc32(np.ascontiguousarray(ids), zlib.crc32(np.ascontiguousarray(keys)))
