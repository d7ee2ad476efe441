from collections.abc import Iterable

import numpy as np

from keras_adaptive.data import BlockBatches, TextCodec
from keras_adaptive.data.batches.batch_dataset import BatchDataset


class TextBatches(BatchDataset):
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
        **kwargs: `start`, the number of updates that an earlier training has made, by default 0, and arguments of
            `keras.utils.PyDataset`.

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
        ids = [codec.encode([*codec.tokenize(line.removesuffix("\n")), "</s>"]) for line in lines]
        tokens = np.concatenate([np.zeros(0, np.int32), *ids])
        super().__init__(BlockBatches(tokens, length, batch_size, seed=seed, shuffle=shuffle), **kwargs)
