from typing import Any

import keras

from keras_adaptive.data.batches.batches import Batches


class BatchDataset(keras.utils.PyDataset):
    """Data set of Keras that yields `Batches`, an epoch after the other, for `fit`.

    Pass `shuffle=False` to `fit`, since the batches have an order of their own.

    Args:
        batches: The `Batches`.
        start: Number of updates that an earlier training has made of the same batches, which are not repeated.
        **kwargs: Arguments of `keras.utils.PyDataset`.

    Example:

    >>> dataset = BatchDataset(BlockBatches(np.arange(100), length=8, batch_size=4, seed=1))
    >>> len(dataset), dataset[0][0].shape
    (4, (4, 8))
    """

    def __init__(self, batches: Batches, *, start: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if start < 0:
            raise ValueError(f"`start` must not be negative. Received: start={start}.")
        self.batches = batches
        self.start = start
        self._begun = 0

    @property
    def epoch(self) -> int:
        """Number of the current epoch of `fit`, counted from 0."""
        return max(self._begun - 1, 0)

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> tuple:
        """Returns a batch of the current epoch, `(inputs, targets, weights)`."""
        return self.batches.batch(self.start + self.epoch * len(self) + index)

    def on_epoch_begin(self) -> None:
        self._begun += 1
