import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np


class Strategy:
    """Divides the batches of a training among replicas. This base class is the strategy for one device.

    Get a strategy from `start`, rather than from this constructor.

    Args:
        replicas: Number of parts into which the rows of a batch are divided.
        processes: Number of processes that train together.
        process: Index of this process, from 0. Process 0 writes the files.
        own_rows: Whether a process passes only its own rows to `fit`, not the whole batch.
        scope: Function without arguments that returns the context manager in which a model is built and trained.

    Example:

    ```python
    strategy = keras_adaptive.distribution.start("mirrored")
    with strategy.scope():
        model = transformer_lm(50_000, num_blocks=6, cutoffs=(4_000, 16_000))
        model.compile(NAG(1.0, global_clipnorm=0.1))
        strategy.synchronize(model)
        model.fit(strategy.shard(batches), steps_per_epoch=1000, shuffle=False)
    ```
    """

    def __init__(
        self,
        replicas: int = 1,
        processes: int = 1,
        process: int = 0,
        own_rows: bool = False,
        scope: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    ) -> None:
        self.replicas = replicas
        self.processes = processes
        self.process = process
        self.scope = scope
        self._own_rows = own_rows

    def shard(self, batches: Iterable, micro_batches: int = 1) -> Iterator:
        """Yields the `local_batch` of every batch."""
        return (self.local_batch(batch, micro_batches) for batch in batches)

    def local_batch(self, batch: Any, micro_batches: int = 1) -> Any:
        """Returns the rows of a batch that this process passes to `fit`.

        Rows of weight 0 fill the batch, so that all replicas have the same number of rows, and the same number in
        each of their `micro_batches`. These rows have no effect. Every row of the batch is used exactly once.

        Args:
            batch: `(tokens, targets, weights)`, (rows, length) each, or any nested structure of arrays with the rows
                along the first axis.
            micro_batches: Number of parts in which each replica computes its rows.

        Returns:
            The same structure with the rows of this process; the whole batch if Keras divides it.
        """
        arrays = keras.tree.flatten(batch)
        missing = -len(arrays[0]) % (self.replicas * micro_batches)
        if not missing and not self._own_rows:
            return batch
        rows = (len(arrays[0]) + missing) // self.processes
        kept = slice(self.process * rows, (self.process + 1) * rows) if self._own_rows else slice(None)

        def filled(array):
            return np.pad(array, [(0, missing), *[(0, 0)] * (array.ndim - 1)])[kept] if missing else array[kept]

        return keras.tree.map_structure(filled, tuple(batch))

    def synchronize(self, model: keras.Model) -> None:
        """Copies the weights of process 0 to the model of every process."""

    def all_reduce_max(self, number: int) -> int:
        """Returns the largest of the integers that the processes pass. All processes must call it."""
        return number
