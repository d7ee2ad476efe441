from typing import Any, Self

import keras
from keras import ops

from keras_adaptive.layers.bodies.segment_attention import SegmentAttention
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout, in_training
from keras_adaptive.ops.attention import attend
from keras_adaptive.ops.sinusoids import sinusoids
from keras_adaptive.typing import Shape

STDDEV = 0.02  # of all weights at the start, as in the published program


@keras.saving.register_keras_serializable(package="keras_adaptive")
class RelativeAttention(SegmentAttention):
    """Attention of Transformer-XL: scores know the distance of query and key, and tokens see a memory.

    The score of query i and key j is ((qᵢ + u) · kⱼ + (qᵢ + w) · r(i − j)) / √head_dim. r(d) is a projection of the
    sinusoid of distance d, and u and w are vectors of each head. No projection has biases. `SegmentAttention` says what
    a token sees.

    Kernels, u and w start from N(0, 0.02²).

    Args:
        num_heads: Number of heads; must divide the dimension of the input.
        memory_length: Number of tokens of the memory, at least 1.
        segment_length: Number of tokens of a segment, as in the published training; `None` for a window of
            `memory_length` tokens, the token itself included, as in the published evaluation (`same_length`).
        clamp_length: Distance above which all distances count as this one; `None` for no limit.
        attend_empty: Whether the memory begins with zeros that are seen, as in the version of Hugging Face.
        own_biases: Whether the layer has u and w. `TransformerDecoder` lends those of its first block if not.
        dropout: Dropout rate on the attention probabilities, in training.
        position_dropout: Dropout rate on the sinusoids, in training.

    Call arguments:
        x, training: As in `Mixer`.

    Raises:
        ValueError: If `num_heads` does not divide the dimension, or a length is below 1.

    Reference:
        Dai et al., Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, ACL 2019, section 3.

    Example:

    >>> attention = RelativeAttention(num_heads=4, memory_length=6, segment_length=4)
    >>> tuple(attention(np.ones((2, 8, 16), "float32")).shape)
    (2, 8, 16)
    """

    use_bias = False

    def __init__(
        self,
        num_heads: int,
        memory_length: int,
        *,
        segment_length: int | None = None,
        clamp_length: int | None = None,
        attend_empty: bool = False,
        own_biases: bool = True,
        dropout: float = 0.0,
        position_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, memory_length, segment_length, dropout=dropout, **kwargs)
        self.attend_empty = attend_empty
        self.clamp_length = clamp_length
        self.own_biases = own_biases
        self.position_dropout = position_dropout
        self._drop_positions = SeededDropout(position_dropout, dtype=self.dtype_policy)
        self._lender = lambda: self

    def borrow(self, lender: Self) -> None:
        """Takes u and w of another layer, if this one has none."""
        if not self.own_biases:
            self._lender = lambda: lender  # a function hides the layer from Keras, which would save its weights twice

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.relative = self._dense(input_shape[-1], "relative")
        self.relative.build(input_shape)
        if self.own_biases:
            shape = (self.num_heads, input_shape[-1] // self.num_heads)
            self.content_bias = self.add_weight(shape=shape, initializer=_normal(), name="content_bias")
            self.position_bias = self.add_weight(shape=shape, initializer=_normal(), name="position_bias")

    def _dense(self, dim, name, *_):
        return FlatDense(dim, use_bias=False, kernel_initializer=_normal(), name=name, dtype=self.dtype_policy)

    def _mix(self, x, seen, first, unseen, visible, training):
        lender, query = self._lender(), self._queries(x)
        content, position = (
            query + ops.cast(bias, query.dtype) * query.shape[-1] ** -0.5
            for bias in (lender.content_bias, lender.position_bias)
        )
        distances = first + ops.shape(x)[1] - 1 - ops.arange(ops.shape(seen)[1])  # of the last query
        if self.clamp_length is not None:
            distances = ops.minimum(distances, self.clamp_length)
        vectors = ops.cast(sinusoids(distances, x.shape[-1], x.shape[-1] // 2), query.dtype)
        relative = self._heads(self.relative(in_training(self._drop_positions, vectors, training)))
        scores = ops.cast(_shifted(ops.einsum("bqhd,khd->bhqk", position, relative)), "float32")
        key, value = self._heads(self.key(seen)), self._heads(self.value(seen))
        return attend(content, key, value, ops.where(visible, scores, -1e9), self._dropped(training))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "clamp_length": self.clamp_length,
            "attend_empty": self.attend_empty,
            "own_biases": self.own_biases,
            "position_dropout": self.position_dropout,
        }


def _shifted(scores):
    """Moves row i of scores (batch, heads, steps, length) to the left by steps − 1 − i; zeros or others' follow."""
    batch, heads, steps, length = ops.shape(scores)
    padded = ops.pad(scores, [[0, 0], [0, 0], [0, 0], [1, 0]])
    return ops.reshape(ops.reshape(padded, (batch, heads, length + 1, steps))[:, :, 1:], (batch, heads, steps, length))


def _normal():
    return keras.initializers.RandomNormal(stddev=STDDEV)
