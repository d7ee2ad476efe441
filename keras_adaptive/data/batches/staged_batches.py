import bisect
import itertools
from collections.abc import Sequence

from keras_adaptive.data.batches.batches import Batches


class StagedBatches(Batches):
    """Batches of several stages of training, such as short blocks first and long ones later (staged training).

    A stage begins at the start of its own first epoch. Lengths and epochs are those of the last stage.

    Args:
        stages: List of pairs `(batches, updates)`: the `Batches` of a stage and its number of updates, which the last
            stage does not use.

    Raises:
        ValueError: If the rows of a stage are streams or differ in length, or a stage but the last has no updates.

    Reference:
        Press et al., Shortformer: Better Language Modeling Using Shorter Inputs, ACL 2021, section 4.

    Example:

    >>> tokens = np.arange(100)
    >>> short, long = (BlockBatches(tokens, length, 32 // length, seed=1) for length in (8, 16))
    >>> batches = StagedBatches([(short, 3), (long, None)])
    >>> [batches.batch(update)[0].shape for update in (2, 3)]
    [(4, 8), (2, 16)]
    """

    lengths_differ = False  # within a stage

    def __init__(self, stages: Sequence[tuple[Batches, int | None]]) -> None:
        self.stages = [batches for batches, _ in stages]
        if not stages or any(batches.stream_rows or batches.lengths_differ for batches in self.stages):
            raise ValueError("`stages` must be batches of rows of one length each, such as `BlockBatches`.")
        if any(updates is None or updates < 1 for _, updates in stages[:-1]):
            raise ValueError(f"All stages but the last need updates. Received: {[updates for _, updates in stages]}.")
        self.stage_ends = tuple(itertools.accumulate(updates for _, updates in stages[:-1]))
        last = self.stages[-1]
        super().__init__(last.tokens, last.seed, last.shuffle)

    def __len__(self) -> int:
        return len(self.stages[-1])

    def batch(self, t: int, part: tuple[int, int] = (0, 1)) -> tuple:
        """Returns the batch of update t, counted from 0, as `Batches.batch` does."""
        number = bisect.bisect_right(self.stage_ends, t)
        return self.stages[number].batch(t - (0, *self.stage_ends)[number], part)
