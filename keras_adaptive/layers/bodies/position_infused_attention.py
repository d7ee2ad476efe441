from typing import Any

import keras
from keras import ops

from keras_adaptive.layers.bodies.segment_attention import SegmentAttention
from keras_adaptive.ops.attention import attend
from keras_adaptive.ops.sinusoids import sinusoids

FIRST_POSITION = 2  # of fairseq's sinusoids


@keras.saving.register_keras_serializable(package="keras_adaptive")
class PositionInfusedAttention(SegmentAttention):
    """Attention of Shortformer: queries and keys have positions, values have none, and tokens see a memory.

    Sinusoids are added to the input of the projections of queries and keys. They count from the oldest vector that is
    seen, so that vectors of earlier segments are used again at other positions. `SegmentAttention` says what a token
    sees.

    Args:
        num_heads: Number of heads; must divide the dimension of the input.
        memory_length: Number of tokens of the memory, at least 1.
        segment_length: Number of tokens of a segment.
        dropout: Dropout rate on the attention probabilities, in training.

    Call arguments:
        x, training: As in `Mixer`.

    Raises:
        ValueError: If `num_heads` does not divide the dimension, or a length is below 1.

    Reference:
        Press, Smith and Lewis, Shortformer: Better Language Modeling Using Shorter Inputs, ACL 2021, section 5.

    Example:

    >>> attention = PositionInfusedAttention(num_heads=4, memory_length=4, segment_length=4)
    >>> tuple(attention(np.ones((2, 8, 16), "float32")).shape)
    (2, 8, 16)
    """

    def __init__(
        self, num_heads: int, memory_length: int, segment_length: int, *, dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(num_heads, memory_length, segment_length, dropout=dropout, **kwargs)

    def _mix(self, x, seen, first, unseen, visible, training):
        dim, length = x.shape[-1], ops.shape(seen)[1]
        positions = ops.arange(length)[None] - (0 if unseen is None else unseen[:, None])
        table = sinusoids(ops.arange(self._kept + self._block) + FIRST_POSITION, dim, dim // 2 - 1)
        vectors = ops.take(ops.cast(table, x.dtype), ops.maximum(positions, 0), axis=0)  # (rows or 1, length, dim)
        query = self._queries(x + ops.take(vectors, first + ops.arange(ops.shape(x)[1]), axis=1))
        key, value = self._heads(self.key(seen + vectors)), self._heads(self.value(seen))
        return attend(query, key, value, visible, self._dropped(training))
