"""Approximate search of a datastore by an index of faiss, which is a file beside its shards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_adaptive.files import checksum as checksum_of
from keras_adaptive.files import commit, partial, reading, writing

SAMPLE = 2**18  # keys that train an index
ROWS = 2**16  # keys that are added at a time
PROBES = 8  # lists of an inverted file that a query reads


def write_index(path: Path, shards: Sequence[tuple[np.ndarray, np.ndarray]], kind: str) -> int:
    """Trains an index, adds all keys and writes it. Returns the CRC-32 of the file.

    Args:
        path: File to write.
        shards: List of pairs `(keys, ids)`.
        kind: Kind of the index, a factory string of faiss such as "IVF4096,PQ64".

    Raises:
        ModuleNotFoundError: If faiss is not installed.
        ValueError: If faiss cannot make this index of these keys.
    """
    faiss, total = _faiss(), sum(len(ids) for _, ids in shards)
    step = -(-total // SAMPLE)
    try:
        index = faiss.index_factory(shards[0][0].shape[1], kind)
        index.train(np.concatenate([keys[::step] for keys, _ in shards]).astype("float32"))
        for keys, _ in shards:
            for start in range(0, len(keys), ROWS):
                index.add(np.asarray(keys[start : start + ROWS], "float32"))
    except RuntimeError as error:
        raise ValueError(
            f"faiss can make no index {kind!r} of {total:,} keys of dimension {shards[0][0].shape[1]}: pass another "
            f'one, such as "Flat" or "IVF4096,PQ64". Its reason: {str(error).splitlines()[0].split(": ")[-1]}'
        ) from None
    with writing(path):
        faiss.write_index(index, str(partial(path)))
        commit(path)
    return checksum_of(path)


def read_index(path: Path, checksum: int, dim: int, total: int) -> Any:
    """Returns an index after checking that the file is whole."""
    faiss = _faiss()
    with reading(path, "the index of a memory", "Run the command that makes it again."):
        if checksum_of(path) != checksum:
            raise ValueError("its contents have changed")
        index = faiss.read_index(str(path))
        if (index.d, index.ntotal) != (dim, total):
            raise ValueError(f"it must have {total:,} keys of dimension {dim}")
    lists = faiss.try_extract_index_ivf(index)
    if lists is not None:
        lists.nprobe = min(PROBES, lists.nlist)
    return index


def _faiss():
    try:
        import faiss
    except ModuleNotFoundError:
        raise ModuleNotFoundError('An index needs faiss: pip install "keras_adaptive[faiss]".', name="faiss") from None
    return faiss
