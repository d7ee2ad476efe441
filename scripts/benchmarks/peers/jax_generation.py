"""Generation by a Transformer with a plain softmax, as a JAX user writes it for speed, for comparison.

One compiled function for a word, whose cache is donated, and one product for query, key and value.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def block(weights, cache, x, place, num_heads):  # x: (batch, dim); cache: (2, batch, capacity, heads, dim / heads)
    batch, dim = x.shape
    query, *new = jnp.moveaxis((norm(x) @ weights["qkv"]).reshape(batch, 3, num_heads, dim // num_heads), 1, 0)
    cache = jax.lax.dynamic_update_slice(cache, jnp.stack(new)[:, :, None], (0, 0, place, 0, 0))
    scores = jnp.einsum("bhd,bthd->bht", query, cache[0]) * (dim // num_heads) ** -0.5
    scores = jnp.where(jnp.arange(cache.shape[2]) <= place, scores, -jnp.inf)
    mixed = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores), cache[1])
    x = x + mixed.reshape(batch, dim) @ weights["out"]
    return x + jax.nn.relu(norm(x) @ weights["ffn_in"]) @ weights["ffn_out"], cache


@functools.partial(jax.jit, static_argnums=5, donate_argnums=1)
def step(weights, caches, tokens, place, key, num_heads):
    x, after = weights["embedding"][tokens], []
    for part, cache in zip(weights["blocks"], caches, strict=True):
        x, cache = block(part, cache, x, place, num_heads)
        after.append(cache)
    below = jnp.cumsum(jax.nn.softmax(norm(x) @ weights["head"]), axis=-1)  # faster than jax.random.categorical
    return (below < jax.random.uniform(key, (len(tokens), 1))).sum(-1), after


def writer(vocabulary_size, dim, num_blocks, ffn_dim, num_heads, batch_size, capacity):
    """Returns a function that draws the next words of the rows, `words(number)`, up to `capacity` of them in all."""
    random = np.random.default_rng(1)
    matrix = lambda *shape: jnp.asarray(random.normal(0, shape[0] ** -0.5, shape).astype("float32"))  # noqa: E731
    sizes = {"qkv": (dim, 3 * dim), "out": (dim, dim), "ffn_in": (dim, ffn_dim), "ffn_out": (ffn_dim, dim)}
    blocks = [{name: matrix(*shape) for name, shape in sizes.items()} for _ in range(num_blocks)]
    weights = {"embedding": matrix(vocabulary_size, dim), "head": matrix(dim, vocabulary_size), "blocks": blocks}
    shape = (2, batch_size, capacity, num_heads, dim // num_heads)
    caches, tokens, place = [jnp.zeros(shape) for _ in blocks], jnp.full((batch_size,), 4), 0

    def words(number):
        nonlocal caches, tokens, place
        for _ in range(number):
            tokens, caches = step(weights, caches, tokens, place, jax.random.key(place), num_heads)
            np.asarray(tokens)  # the user reads every word
            place += 1

    return words
