import contextlib

import keras
import numpy as np


class Strategy:
    """Base class of strategies, which divide the batches of a training among replicas; itself for one device.

    Attributes:
        replicas: Number of parts into which the rows of a batch are divided.
        processes: Number of processes that train together.
        process: Index of this process, from 0. Process 0 writes the files.

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

    def __init__(self, replicas=1, processes=1, process=0, own_rows=False, scope=contextlib.nullcontext):
        self.replicas = replicas
        self.processes = processes
        self.process = process
        self.scope = scope
        self._own_rows = own_rows  # whether a process is given its own rows only

    def shard(self, batches, micro_batches=1):
        """Yields the `part` of each of the `batches`."""
        return (self.part(batch, micro_batches) for batch in batches)

    def part(self, batch, micro_batches=1):
        """Returns the rows of a batch that this process passes to `fit`.

        Rows of weight 0 fill the batch, so that all replicas have the same number of rows, and the same number in
        each of their `micro_batches`. They have no effect, and no row is left out or counted twice.

        Args:
            batch: `(tokens, targets, weights)`, (rows, length) each, or any nested structure of arrays with the rows
                along the first axis.
            micro_batches: Number of parts in which each replica computes its rows.
        """
        arrays = keras.tree.flatten(batch)
        missing = -len(arrays[0]) % (self.replicas * micro_batches)
        if not missing and not self._own_rows:
            return batch
        rows = (len(arrays[0]) + missing) // self.processes
        own = slice(self.process * rows, (self.process + 1) * rows) if self._own_rows else slice(None)

        def filled(array):
            return np.pad(array, [(0, missing), *[(0, 0)] * (array.ndim - 1)])[own] if missing else array[own]

        return keras.tree.map_structure(filled, tuple(batch))

    def synchronize(self, model):
        """Copies the weights of process 0 to the model of every process."""

    def largest(self, number):
        """Returns the largest of the integers that the processes pass. All processes must call it."""
        return number
