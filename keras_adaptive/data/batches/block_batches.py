import numpy as np
from numpy.typing import ArrayLike

from keras_adaptive.data.batches.batches import Batches
from keras_adaptive.data.batches.token_stream import cut


class BlockBatches(Batches):
    """Batches of blocks of text, cut from the stream of tokens every `length` tokens, regardless of lines.

    Every batch has the shape (batch_size, length). The last block is padded, and the last batch of an epoch is filled
    with empty rows. Padding has weight 0. The first input of a block is the last token of the preceding block in the
    text, or `</s>` at the start of the text.

    Args:
        tokens: Ids of a split, (tokens,).
        length: Number of tokens in a block.
        batch_size: Number of blocks in a batch.
        seed: Integer that determines the order of the blocks, together with the epoch.
        shuffle: Whether the blocks are shuffled. False keeps the order of the text.

    Raises:
        ValueError: If there are fewer tokens than a block holds.

    Example:

    >>> batches = BlockBatches(np.array([7, 8, 9, 2, 5, 2]), length=4, batch_size=1, seed=1, shuffle=False)
    >>> inputs, targets, weights = batches.batch(0)
    >>> inputs.tolist(), targets.tolist()
    ([[2, 7, 8, 9]], [[7, 8, 9, 2]])
    """

    lengths_differ = False

    def __init__(self, tokens: ArrayLike, length: int, batch_size: int, *, seed: int, shuffle: bool = True) -> None:
        super().__init__(tokens, seed, shuffle)
        self.length = length
        self.batch_size = batch_size
        if not 1 <= length <= len(self.tokens):
            raise ValueError(
                f"`length` must be from 1 to the number of tokens ({len(self.tokens)}). Received: length={length}. "
                "Use shorter blocks or a larger text."
            )
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be positive. Received: batch_size={batch_size}.")

    def __len__(self) -> int:
        return -(-self._blocks // self.batch_size)

    @property
    def _blocks(self):
        return -(-len(self.tokens) // self.length)

    def _order(self, rng):
        blocks = np.full(len(self) * self.batch_size, self._blocks)  # the block after the last one is empty
        blocks[: self._blocks] = self._permutation(rng, self._blocks)
        return blocks

    def _batch(self, order, index, part):
        starts = order[index * self.batch_size :][: self.batch_size] * self.length
        stops = np.minimum(starts + self.length, len(self.tokens))
        return cut(self.tokens, starts, stops, self.length, part)
