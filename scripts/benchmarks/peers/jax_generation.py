"""Generation by a Transformer with a plain softmax, as a JAX user writes it for speed, for comparison.

One compiled function for a word, whose cache is donated, one product for query, key and value, and keys and values with
heads before tokens, whose products then copy nothing: one array for both takes 1.4 times as long.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def block(weights, keys, values, x, place, num_heads):  # x: (batch, dim); keys: (batch, heads, capacity, dim / heads)
    shape = (len(x), num_heads, 1, x.shape[1] // num_heads)
    query, key, value = (part.reshape(shape) for part in jnp.split(norm(x) @ weights["qkv"], 3, axis=-1))
    keys = jax.lax.dynamic_update_slice(keys, key, (0, 0, place, 0))
    values = jax.lax.dynamic_update_slice(values, value, (0, 0, place, 0))
    scores = jnp.einsum("bhqd,bhtd->bhqt", query, keys) * shape[-1] ** -0.5
    scores = jnp.where(jnp.arange(keys.shape[2]) <= place, scores, -jnp.inf)
    mixed = jnp.einsum("bhqt,bhtd->bhqd", jax.nn.softmax(scores), values)
    x = x + mixed.reshape(x.shape) @ weights["out"]
    return x + jax.nn.relu(norm(x) @ weights["ffn_in"]) @ weights["ffn_out"], (keys, values)


@functools.partial(jax.jit, static_argnums=5, donate_argnums=1)
def step(weights, caches, tokens, place, key, num_heads):
    x, after = weights["embedding"][tokens], []
    for part, cache in zip(weights["blocks"], caches, strict=True):
        x, cache = block(part, *cache, x, place, num_heads)
        after.append(cache)
    below = jnp.cumsum(jax.nn.softmax(norm(x) @ weights["head"]), axis=-1)  # faster than jax.random.categorical
    return (below < jax.random.uniform(key, (len(tokens), 1))).sum(-1), after


def writer(vocabulary_size, dim, num_blocks, ffn_dim, num_heads, batch_size, capacity):
    """Returns a function that draws texts, `words(number)`, up to `capacity` words from the beginning."""
    random = np.random.default_rng(1)
    matrix = lambda *shape: jnp.asarray(random.normal(0, shape[0] ** -0.5, shape).astype("float32"))  # noqa: E731
    sizes = {"qkv": (dim, 3 * dim), "out": (dim, dim), "ffn_in": (dim, ffn_dim), "ffn_out": (ffn_dim, dim)}
    blocks = [{name: matrix(*shape) for name, shape in sizes.items()} for _ in range(num_blocks)]
    weights = {"embedding": matrix(vocabulary_size, dim), "head": matrix(dim, vocabulary_size), "blocks": blocks}
    shape = (batch_size, num_heads, capacity, dim // num_heads)

    def words(number):
        caches, tokens = [(jnp.zeros(shape), jnp.zeros(shape)) for _ in blocks], jnp.full((batch_size,), 4)
        for place in range(number):
            tokens, caches = step(weights, caches, tokens, place, jax.random.key(place), num_heads)
            np.asarray(tokens)  # the user reads every word

    return words
