import functools
import os
import sys
from pathlib import Path
from typing import Any

from keras_adaptive.data.batches.batches import Batches
from keras_adaptive.data.batches.block_batches import BlockBatches
from keras_adaptive.data.corpus import Corpus

_AHEAD = 16  # batches that a thread reads ahead


def grain_dataset(
    corpus: Corpus | Batches | str | os.PathLike,
    *,
    length: int | None = None,
    batch_size: int | None = None,
    seed: int = 1,
    split: str = "train",
    start: int = 0,
    process: int = 0,
    processes: int = 1,
) -> Any:
    """Returns training batches as a data set of Grain, for `fit` on any backend and for other pipelines of Grain.

    Element t is the batch of update `start` + t. The data set has no end, since every epoch has an order of its own:
    pass `steps_per_epoch` and `shuffle=False` to `fit`. The state of its iterator is `{"next_index": t}`, the number of
    batches so far. Checkpoints of `Backup` hold this number, so that training resumes bit-identically with
    `start=backup.update`.

    Each of several processes (hosts) reads its own rows of every batch, `batch_size` / `processes` rows, which are
    filled with rows of weight 0 if they do not divide the batch. All processes together read the batch that one process
    would read. A training may therefore resume on another number of hosts.

    Args:
        corpus: `Corpus`, or its folder, whose tokens are read in blocks; or any other `Batches`, which have a length, a
            size and a seed of their own.
        length: Number of tokens in a block of a corpus.
        batch_size: Number of blocks in a batch of all processes.
        seed: Integer that determines the order of the blocks, together with the epoch.
        split: "train", "valid" or "test".
        start: Number of updates that were made before.
        process: Number of this process, from 0, such as `jax.process_index()`.
        processes: Number of processes, such as `jax.process_count()`.

    Returns:
        A `grain.IterDataset` of `(inputs, targets, weights)`, (rows, length) each.

    Raises:
        ModuleNotFoundError: If Grain is not installed.
        ValueError: If a corpus has no `length` and `batch_size`, `Batches` have them, or a number is out of range.

    Example:

    ```python
    dataset = grain_dataset("data/books", length=512, batch_size=64)
    model.fit(dataset, steps_per_epoch=1000, epochs=2, shuffle=False, callbacks=[backup])

    backup.restore(model)  # another time
    dataset = grain_dataset("data/books", length=512, batch_size=64, start=backup.update)
    model.fit(dataset, steps_per_epoch=1000, epochs=4, initial_epoch=backup.epoch, shuffle=False, callbacks=[backup])
    ```
    """
    try:
        import grain
    except ModuleNotFoundError:
        raise ModuleNotFoundError('`grain_dataset` needs Grain: pip install "keras_adaptive[grain]".') from None
    if isinstance(corpus, Batches) != (length is None) or (length is None) != (batch_size is None):
        raise ValueError(
            "`length` and `batch_size` must be given for a corpus, and omitted for `Batches`, which have them. "
            f"Received: corpus={type(corpus).__name__}, length={length}, batch_size={batch_size}."
        )
    if start < 0 or not 0 <= process < processes:
        raise ValueError(
            "`start` must not be negative, and `process` must be from 0 to `processes` - 1. "
            f"Received: start={start}, process={process}, processes={processes}."
        )
    if isinstance(corpus, Batches):
        make = functools.partial(_given, corpus)
    else:
        folder = corpus.data_dir if isinstance(corpus, Corpus) else Path(corpus)
        make = functools.partial(_blocks, folder, split, length, batch_size, seed)
    source = _Source(make, start, (process, processes))
    # One thread reads in order, since each epoch has an order that is computed once.
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_AHEAD)
    return grain.MapDataset.source(source).to_iter_dataset(reading)


class _Source:
    """Source of Grain. Another process, to which it is sent, opens the files of the corpus again."""

    def __init__(self, make, start, part):
        self._how = make, start, part
        self._batches = make()

    def __len__(self):
        return sys.maxsize - self._how[1]

    def __getitem__(self, index):
        _, start, part = self._how
        return self._batches.batch(start + int(index), part)

    def __reduce__(self):
        return _Source, self._how


def _blocks(folder, split, length, batch_size, seed):
    return BlockBatches(Corpus(folder).tokens(split), length, batch_size, seed=seed)


def _given(batches):
    return batches
