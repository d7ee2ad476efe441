import numpy as np

from keras_adaptive.data.batches.batches import Batches
from keras_adaptive.data.batches.token_stream import cut


class BlockBatches(Batches):
    """Batches of blocks of text: the stream of tokens is cut every `length` tokens, regardless of lines.

    Every batch has the same shape, (batch_size, length): the last block is padded, and the last batch of an epoch is
    padded with empty rows. Padding has weight 0. The input of a block's first token is the last token of
    the block before it in the text, and `</s>` at the start of the text.

    Args:
        tokens: Ids of a split (tokens,).
        length: Number of tokens of a block.
        batch_size: Number of blocks of a batch.
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

    def __init__(self, tokens, length, batch_size, *, seed, shuffle=True):
        super().__init__(tokens, seed, shuffle)
        self.length = length
        self.batch_size = batch_size
        if not 1 <= length <= len(self.tokens):
            raise ValueError(
                f"`length` must be from 1 to the number of tokens ({len(self.tokens)}). Received: {length}. "
                "Use shorter blocks or a larger text."
            )
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be positive. Received: {batch_size}")

    def __len__(self):
        return -(-self._blocks // self.batch_size)

    @property
    def _blocks(self):
        return -(-len(self.tokens) // self.length)

    def _order(self, rng):
        blocks = np.full(len(self) * self.batch_size, self._blocks)  # the block after the last one is empty
        blocks[: self._blocks] = self._permutation(rng, self._blocks)
        return blocks

    def _batch(self, order, index):
        starts = order[index * self.batch_size :][: self.batch_size] * self.length
        stops = np.minimum(starts + self.length, len(self.tokens))
        return cut(self.tokens, starts, stops, self.length)
