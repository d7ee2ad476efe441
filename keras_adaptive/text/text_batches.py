from collections.abc import Iterable

import keras
import numpy as np

from keras_adaptive.data import BlockBatches, TextCodec


class TextBatches(keras.utils.PyDataset):
    """Batches of lines of text for `fit`, equal to those of `BlockBatches` on the ids of the text.

    The constructor tokenizes the text; its ids take four bytes per token in memory. For a larger text, `prepare` writes
    the ids to disk.

    Args:
        lines: Iterable of lines, such as an open file. A `</s>` ends each, and replaces line breaks within a string.
        codec: The `TextCodec` of the model.
        length: Number of tokens of a block.
        batch_size: Number of blocks of a batch.
        seed: Integer that determines the order of the blocks, together with the epoch.
        shuffle: Whether the blocks are shuffled. False keeps the order of the text, for validation.
        **kwargs: Arguments of `keras.utils.PyDataset`.

    Raises:
        ValueError: If the text has fewer tokens than a block.

    Example:

    >>> codec = TextCodec(Vocabulary.from_counts({"the": 9, "cat": 2, "sat": 2}))
    >>> model = transformer_lm(len(codec.vocabulary), dim=16, num_blocks=1, num_heads=2, ffn_dim=32, cutoffs=(6,))
    >>> model.compile("adam")
    >>> batches = TextBatches(["the cat sat", "the cat"], codec, length=3, batch_size=2, seed=1)
    >>> history = model.fit(batches, epochs=2, shuffle=False, verbose=0)  # the batches have an order of their own
    """

    def __init__(
        self,
        lines: Iterable[str],
        codec: TextCodec,
        length: int,
        batch_size: int,
        *,
        seed: int,
        shuffle: bool = True,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        ids = [codec.encode([*codec.tokenize(line.removesuffix("\n")), "</s>"]) for line in lines]
        tokens = np.concatenate([np.zeros(0, np.int32), *ids])
        self.batches = BlockBatches(tokens, length, batch_size, seed=seed, shuffle=shuffle)
        self._begun = 0

    @property
    def epoch(self) -> int:
        """Number of the current epoch of `fit`, counted from 0."""
        return max(self._begun - 1, 0)

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns `(inputs, targets, weights)` of a batch of the current epoch, each (batch_size, length)."""
        return self.batches.batch(self.epoch * len(self) + index)

    def on_epoch_begin(self) -> None:
        self._begun += 1
