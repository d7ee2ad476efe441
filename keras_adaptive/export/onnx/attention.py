"""Attention of the bodies, over whole texts."""

import math

import numpy as np

from keras_adaptive.export.onnx.graph import Graph, Value

HIDDEN = -1e9  # score of a key that a query does not see


def inside(weights: dict, name: str) -> dict:
    """Returns the weights of a part, under their names within it."""
    return {key[len(name) + 1 :]: array for key, array in weights.items() if key.startswith(f"{name}.")}


def frequencies(dim: int, divisor: int) -> np.ndarray:
    """Returns 10000^(−k/divisor) for k < dim/2."""
    return np.exp(np.arange(dim // 2) * (-math.log(10000.0) / divisor)).astype("float32")


def sinusoids(graph: Graph, places: Value, dim: int, divisor: int) -> Value:
    """Returns [sin(p·w), cos(p·w)] of places p (length,): (length, dim)."""
    angles = graph.Unsqueeze(graph.Cast(places, to=1), [1]) * frequencies(dim, divisor)
    return graph.Concat(graph.Sin(angles), graph.Cos(angles), axis=-1)


def attention(graph: Graph, x: Value, places: Value, config: dict, weights: dict) -> Value:
    """Returns the output (batch, length, dim) of a mixing layer.

    Args:
        graph: The graph.
        x: Vectors (batch, length, dim).
        places: The numbers below the length.
        config: Arguments of its module in `pure_torch`.
        weights: Its weights.
    """
    number = config["num_heads"]
    heads = lambda vectors: graph.Transpose(graph.Reshape(vectors, [0, 0, number, -1]), perm=[0, 2, 1, 3])  # noqa: E731
    layer = lambda name, vectors: heads(graph.linear(vectors, inside(weights, name)))  # noqa: E731
    key, value, seen, at = layer("key", x), layer("value", x), places, graph.Unsqueeze(places, [1])
    if config.get("attend_empty"):
        empty = config["memory_length"]
        key, value = (graph.Pad(array, [0, 0, empty, 0, 0, 0, 0, 0]) for array in (key, value))
        seen = graph.Concat(np.arange(-empty, 0), places, axis=0)
    dim = weights["query.weight"].shape[0]
    scale = (dim // number) ** -0.5
    first = _first(graph, at, config)
    keys = graph.Transpose(key, perm=[0, 1, 3, 2])
    if config["kind"] == "infused":
        oldest = graph.Max(first, 0)
        vectors = _sinusoids(config["memory_length"] + config["segment_length"], dim)
        infused = graph.Gather(vectors, graph.Squeeze(at - oldest, [1]))
        query = layer("query", x + infused) * scale
        scores = query @ keys
        keys_of_places = vectors @ weights["key.weight"].T
        scores += _at_places(graph, query, scores, _split(keys_of_places, number), seen - oldest)
    elif config["kind"] == "relative":
        query = layer("query", x) * scale
        content, position = (
            query + weights[f"{name}_bias"][:, None] * np.float32(scale) for name in ("content", "position")
        )
        distances = graph.range(graph.length(key, 2))
        if config["clamp_length"] is not None:
            distances = graph.Min(distances, config["clamp_length"])
        vectors = graph.linear(sinusoids(graph, distances, dim, dim // 2), inside(weights, "relative"))
        vectors = graph.Transpose(graph.Reshape(vectors, [0, number, -1]), perm=[1, 2, 0])
        scores = content @ keys
        scores += _at_places(graph, position, scores, vectors, at - seen)
    else:
        scores = layer("query", x) * scale @ keys
        if config["alibi"]:
            scores -= graph.Cast(at - seen, to=1) * _slopes(number)
    visible = graph.And(graph.LessOrEqual(seen, at), graph.GreaterOrEqual(seen, first))
    shares = graph.Softmax(graph.Where(visible, scores, HIDDEN), axis=-1)
    mixed = graph.Transpose(shares @ value, perm=[0, 2, 1, 3])
    return graph.linear(graph.Reshape(mixed, [0, 0, -1]), inside(weights, "out"))


def _first(graph, at, config):
    """Returns the first place that each query sees, (length, 1)."""
    if config["kind"] == "causal":
        return at * 0 if config["window"] is None else at - (config["window"] - 1)
    if config["segment_length"] is None:
        return at - (config["memory_length"] - 1)
    return at - graph.Mod(at, config["segment_length"]) - config["memory_length"]


def _at_places(graph, query, scores, vectors, index):
    """Returns the products of queries with the vector that an index (length, seen) names: of the shape of `scores`.

    The vectors are (heads, dim, number).
    """
    products = query @ vectors
    last = graph.length(products, 3) - 1
    index = graph.Min(graph.Max(index, 0), last)
    return graph.GatherElements(products, graph.Expand(index, graph.Shape(scores)), axis=-1)


def _slopes(num_heads):
    """Returns the slopes of the heads, (heads, 1, 1)."""
    power = 2 ** (num_heads.bit_length() - 1)
    slopes, between = ([2.0 ** (-8 * i / n) for i in range(1, n + 1)] for n in (power, 2 * power))
    return np.array([*slopes, *between[::2]][:num_heads], "float32")[:, None, None]


def _sinusoids(number, dim):
    """Returns the vectors (number, dim) of the places of Shortformer, which count from 2."""
    angles = (np.arange(number, dtype="float32") + 2)[:, None] * frequencies(dim, dim // 2 - 1)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1)


def _split(vectors, num_heads):
    """Returns vectors (number, dim) as (heads, dim of a head, number)."""
    return vectors.reshape(len(vectors), num_heads, -1).transpose(1, 2, 0)
