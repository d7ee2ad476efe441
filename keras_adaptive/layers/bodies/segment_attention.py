from typing import Any

from keras import ops

from keras_adaptive.backend.slice_update import slice_update
from keras_adaptive.layers.bodies.attention import Attention
from keras_adaptive.typing import Tensor


class SegmentAttention(Attention):
    """Base class of attention layers with a memory: the vectors of the tokens before the segment of a token.

    A text is divided into segments of `segment_length` tokens. A token sees the tokens of its segment up to itself, and
    the last `memory_length` tokens before the segment. Without `segment_length` it sees the `memory_length` tokens up
    to itself, wherever a segment begins. The state of `step` holds the vectors that entered the layer, so that keys and
    values of the memory are those of the current weights. No gradient flows into a state.

    What a token sees depends on its place in the text alone, not on the steps in which the text is read. In training,
    every step of at most `segment_length` tokens begins a segment, as in the published programs.

    Subclasses implement `_mix`.

    Args:
        num_heads, dropout: As in `Attention`.
        memory_length: Number of tokens of the memory, at least 1.
        segment_length: Number of tokens of a segment, `None` for a window of `memory_length` tokens.

    Attributes:
        attend_empty: Whether the memory begins with vectors of zeros, which are seen, in place of no vectors.

    Raises:
        ValueError: If a length is below 1.
    """

    carries = True
    attend_empty: bool = False

    def __init__(self, num_heads: int, memory_length: int, segment_length: int | None, **kwargs: Any) -> None:
        super().__init__(num_heads, **kwargs)
        if memory_length < 1 or segment_length is not None and segment_length < 1:
            raise ValueError(
                "`memory_length` and `segment_length` must be at least 1. "
                f"Received: memory_length={memory_length}, segment_length={segment_length}."
            )
        self.memory_length = memory_length
        self.segment_length = segment_length
        self._kept = memory_length - (segment_length is None)  # tokens before a segment that are seen
        self._block = segment_length or memory_length  # tokens of a text that are computed as one row

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        if not self.attend_empty and isinstance(x.shape[1], int) and x.shape[1] <= self._block:
            return self._attend(x, x, 0, None, training)
        return self._in_blocks(x, self.initial_state(ops.shape(x)[0], None, x.shape[-1]), 0, training)[0]

    def initial_state(self, batch_size: int, length: int | None, dim: int) -> tuple[Tensor, ...]:
        """Returns a state of fixed size without tokens.

        It has the vectors of the memory and of a segment (batch, tokens, dim), the number of them that belong to the
        memory of the row (batch,), and the number of tokens of the segment so far (batch,).
        """
        tokens = self._kept + (self.segment_length or 0)
        none = ops.zeros((batch_size,), "int32")
        known = none + (self._kept if self.attend_empty else 0)
        return ops.zeros((batch_size, tokens, dim), self.compute_dtype), known, none

    def step(self, x: Tensor, state: Any, position: int | Tensor, training: bool | None = False) -> tuple[Tensor, Any]:
        vectors, known, places = map(ops.convert_to_tensor, state)
        place = ops.max(places, initial=0)
        state = vectors, known + places - place, places  # of a row that began later, less is known
        steps, window = ops.shape(x)[1], self.segment_length is None
        if not isinstance(steps, int) or steps > (self._block if training or window else 1):
            y, (after, *counts) = self._in_blocks(x, state, 0 if window else place, training)
        else:
            y, (after, *counts) = (self._in_window if window else self._in_segment)(x, state, place, training)
        after = ops.reshape(after, ops.shape(vectors))  # TensorFlow does not see that the shape is the same
        return y, (after, *counts)

    def _in_window(self, x, state, place, training):
        """Attends to the memory and to the tokens themselves, of which the last become the memory."""
        vectors, known, places = state
        seen, steps = ops.concatenate([vectors, x], axis=1), x.shape[1]
        y = self._attend(x, seen, self._kept, self._kept - known, training)
        return y, (seen[:, steps:], ops.minimum(known + steps, self._kept), places)

    def _in_segment(self, x, state, place, training):
        """Attends in one segment: a new one in training, or if the last one is full."""
        vectors, known, places = state
        kept, steps = self._kept, x.shape[1]
        begins = training or place >= self.segment_length
        begin = ops.where(begins, place, 0)
        known = ops.minimum(known + begin, kept)
        memory = ops.slice(vectors, [0, begin, 0], [ops.shape(x)[0], kept, x.shape[-1]])
        if training:
            first, seen = 0, ops.concatenate([memory, x], axis=1)
            rest = self.segment_length - steps
            vectors = ops.pad(seen, [[0, 0], [0, rest], [0, 0]]) if rest else seen
        else:
            first = place - begin
            vectors = seen = slice_update(ops.concatenate([memory, vectors[:, kept:]], axis=1), x, kept + first)
        y = self._attend(x, seen, kept + first, kept - known, training)
        return y, (vectors, known, ops.zeros_like(places) + first + steps)

    def _in_blocks(self, x, state, place, training):
        """Attends in all segments of any number of tokens: each is a row of a batch, after a copy of its memory."""
        vectors, known, places = state
        (batch, steps), dim, kept, block = ops.shape(x)[:2], x.shape[-1], self._kept, self._block
        tokens = vectors.shape[1]
        both = ops.concatenate([vectors, x], axis=1)

        def take(numbers):
            """Returns the vectors of tokens, counted from the beginning of the segment of the state."""
            index = ops.where(numbers < place, kept + numbers, tokens + numbers - place)
            return ops.take(both, ops.clip(index, 0, tokens + steps - 1), axis=1)

        unknown = 0 if isinstance(place, int) else block  # the state may hold so many tokens of its segment
        blocks = -(-(steps + unknown) // block)
        starts = ops.arange(blocks) * block
        seen = take(starts[:, None] + ops.arange(kept + block) - kept)
        seen = ops.reshape(seen, (batch * blocks, kept + block, dim))
        before = ops.reshape(ops.minimum(known[:, None] + starts, kept), (batch * blocks,))
        y = ops.reshape(self._attend(seen[:, kept:], seen, kept, kept - before, training), (batch, blocks * block, dim))
        y = y[:, :steps] if isinstance(place, int) else ops.take(y, place + ops.arange(steps), axis=1)
        total = place + steps
        last = total if self.segment_length is None else (total - 1) // block * block  # tokens before the new segment
        vectors = take(last - kept + ops.arange(tokens))
        return y, (vectors, ops.minimum(known + last, kept), ops.zeros_like(places) + (total - last))

    def _attend(self, x, seen, first, unseen, training):
        """Attends from `x` (rows, steps, dim) to `seen` (rows, length, dim), which has `x` at the index `first`.

        The first `unseen` (rows,) of the vectors are not visible; `None` stands for 0.
        """
        places, keys = first + ops.arange(ops.shape(x)[1])[:, None], ops.arange(ops.shape(seen)[1])
        visible = keys <= places
        if self.segment_length is None:
            visible &= places - keys < self.memory_length
        if unseen is not None:
            visible = (visible & (keys >= unseen[:, None, None]))[:, None]  # (rows, 1, steps, length)
        return self._joined(self._mix(x, seen, first, unseen, visible, training))

    def _mix(self, x, seen, first, unseen, visible, training):
        """Returns the mixed values (rows, steps, heads, head_dim) by the mask `visible`; see `_attend`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `_mix`.")

    def activations_per_token(self, length: int, dim: int) -> int:
        """Counts queries and outputs, keys, values and probabilities per head of all vectors that are seen."""
        steps = min(length, self._block)
        seen = self._kept + steps
        return 2 * dim + 3 * dim * seen // steps + self.num_heads * seen * (3 + (self.dropout > 0))

    def get_config(self) -> dict[str, Any]:
        lengths = {"memory_length": self.memory_length, "segment_length": self.segment_length}
        return {**super().get_config(), "num_heads": self.num_heads, **lengths, "dropout": self.dropout}
