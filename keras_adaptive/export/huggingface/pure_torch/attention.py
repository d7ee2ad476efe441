"""Attention of the bodies, and what they know of a text."""

import math
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

HIDDEN = -1e9  # score of a key that a query does not see


class Text(NamedTuple):
    """What a body knows of the tokens, apart from their vectors.

    Args:
        known: Bool tensor (batch, seen), false for padding. The last `steps` tokens are the new ones.
        places: Int tensor (batch, seen), the number of tokens of the text before each token.
        steps: Number of new tokens.
        cache: What the layers keep of every token, or `None`.
    """

    known: torch.Tensor
    places: torch.Tensor
    steps: int
    cache: Any

    @property
    def new(self):
        """Whether each new token is known, (batch, steps, 1)."""
        return self.known[:, -self.steps :, None]

    def keep(self, layer, keys, values):
        """Keeps tensors (batch, heads, steps, any) of the new tokens, and returns the tensors of all tokens."""
        return (keys, values) if self.cache is None else self.cache.update(keys, values, layer)

    def last(self, layer, *zeros):
        """Returns what a layer keeps of the last token, a pair (batch, any), or `zeros` at the beginning."""
        if self.cache is None or self.known.shape[1] == self.steps:
            return zeros
        kept = self.cache.layers[layer]
        return kept.keys[:, 0, -1], kept.values[:, 0, -1]


def parameter(*shape):
    return nn.Parameter(torch.zeros(shape))


def sinusoids(places, dim, divisor):
    """Returns [sin(p·w), cos(p·w)] of places p (…), w_k = 10000^(−k/divisor): (…, dim) float32."""
    powers = torch.arange(dim // 2, dtype=torch.float64) * (-math.log(10000.0) / divisor)
    angles = places[..., None].float() * powers.exp().float().to(places.device)
    return torch.cat([angles.sin(), angles.cos()], -1)


class CausalAttention(nn.Module):
    """Causal attention, over a window or over all earlier tokens, with linear biases (ALiBi) or without."""

    def __init__(self, layer, dim, num_heads, *, use_bias=True, window=None, alibi=False):
        super().__init__()
        self.layer, self.num_heads, self.window, self.alibi = layer, num_heads, window, alibi
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim, bias=use_bias) for _ in range(4))

    def forward(self, x, text):
        key, value = text.keep(self.layer, self._heads(self.key(x)), self._heads(self.value(x)))
        known, at, places = text.known[:, None], text.places[:, -text.steps :, None], text.places[:, None]
        key, value, known, places = self._with_empty(key, value, known, places)
        visible = known & (places <= at) & (places >= self._first(at))  # (batch, steps, seen)
        query, scores = self._query_and_scores(x, key, at, places)
        mask = torch.where(visible[:, None], scores, HIDDEN).to(query.dtype)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _heads(self, vectors):
        return vectors.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _queries(self, x):
        query = self._heads(self.query(x))
        return query * query.shape[-1] ** -0.5

    def _with_empty(self, *seen):
        return seen

    def _first(self, at):
        """Returns the first place that the queries see."""
        return at * 0 if self.window is None else at - self.window + 1

    def _query_and_scores(self, x, key, at, places):
        """Returns the queries, and what is added to their products with the keys."""
        query = self._queries(x)
        if not self.alibi:
            return query, torch.zeros((), device=x.device)
        power = 2 ** (self.num_heads.bit_length() - 1)
        slopes, between = ([2.0 ** (-8 * i / n) for i in range(1, n + 1)] for n in (power, 2 * power))
        slopes = torch.tensor([*slopes, *between[::2]][: self.num_heads], device=x.device)
        return query, -slopes[:, None, None] * (at - places)[:, None].float()


class SegmentAttention(CausalAttention):
    """Base class of attention over a segment and a memory, with scores that depend on the place of a key."""

    def __init__(self, layer, dim, num_heads, *, memory_length, segment_length, use_bias=True):
        super().__init__(layer, dim, num_heads, use_bias=use_bias)
        self.memory_length, self.segment_length = memory_length, segment_length

    def _first(self, at):
        if self.segment_length is None:
            return at - self.memory_length + 1
        return at - at % self.segment_length - self.memory_length

    def _at_places(self, query, vectors, index):
        """Returns the products of queries with the vector (number, dim) that an index (batch, steps, seen) names."""
        products = query @ self._heads(vectors[None]).transpose(-1, -2)  # (batch, heads, steps, number)
        index = index.clamp(0, len(vectors) - 1)[:, None].expand(-1, self.num_heads, -1, -1)
        return products.gather(-1, index).float()


class RelativeAttention(SegmentAttention):
    """Attention of Transformer-XL: scores depend on the distance of query and key."""

    def __init__(self, layer, dim, num_heads, *, clamp_length=None, attend_empty=False, **kwargs):
        super().__init__(layer, dim, num_heads, use_bias=False, **kwargs)
        self.clamp_length, self.attend_empty = clamp_length, attend_empty
        self.relative = nn.Linear(dim, dim, bias=False)
        self.content_bias, self.position_bias = (parameter(num_heads, dim // num_heads) for _ in range(2))

    def _with_empty(self, key, value, known, places):
        if not self.attend_empty:
            return key, value, known, places
        number = self.memory_length
        key, value = (F.pad(array, (0, 0, number, 0)) for array in (key, value))
        before = torch.arange(-number, 0, device=places.device).expand(len(places), 1, -1)
        return key, value, F.pad(known, (number, 0), value=True), torch.cat([before, places], -1)

    def _query_and_scores(self, x, key, at, places):
        query = self._queries(x)
        content, position = (
            query + bias[:, None] * query.shape[-1] ** -0.5 for bias in (self.content_bias, self.position_bias)
        )
        distances = torch.arange(key.shape[2], device=x.device)
        if self.clamp_length is not None:
            distances = distances.clamp(max=self.clamp_length)
        vectors = self.relative(sinusoids(distances, x.shape[-1], x.shape[-1] // 2).to(x.dtype))
        return content, self._at_places(position, vectors, at - places)


class PositionInfusedAttention(SegmentAttention):
    """Attention of Shortformer: queries and keys have positions, counted from the oldest token that is seen."""

    def _query_and_scores(self, x, key, at, places):
        oldest, dim = self._first(at).clamp(min=0), x.shape[-1]
        number = torch.arange(self.memory_length + self.segment_length, device=x.device)
        vectors = sinusoids(number + 2, dim, dim // 2 - 1).to(x.dtype)
        query = self._queries(x + vectors[(at - oldest)[..., 0].clamp(0, len(number) - 1)])
        return query, self._at_places(query, F.linear(vectors, self.key.weight), places - oldest)


MIXERS: dict[str, type[nn.Module]] = {
    "causal": CausalAttention,
    "relative": RelativeAttention,
    "infused": PositionInfusedAttention,
}
