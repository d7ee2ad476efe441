"""Losses of JAX alone, on the hidden states and weights of `scripts.benchmarks.loss`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

CHUNK_ROWS = 128


def candidates(hidden, targets, weights):
    """Returns `{name: function that returns (step, values)}` of a plain softmax."""
    losses = {"JAX logits": whole_loss, "JAX loop over chunks": looped_loss}
    return {name: functools.partial(step_of, loss, hidden, targets, weights[0]) for name, loss in losses.items()}


def whole_loss(x, table, targets):
    logits = x @ table.T
    return jnp.sum(jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0])


def looped_loss(x, table, targets):
    """The loop that training programs write themselves: a chunk of rows at a time, whose logits are computed twice."""
    rows = min(CHUNK_ROWS, len(x))
    chunks = x.reshape(-1, rows, x.shape[1]), targets.reshape(-1, rows)
    of_chunk = jax.checkpoint(lambda total, chunk: (total + whole_loss(chunk[0], table, chunk[1]), None))
    return jax.lax.scan(of_chunk, 0.0, chunks)[0]


def step_of(loss, hidden, targets, table):
    arrays = list(map(jnp.asarray, (hidden, table, targets)))
    function = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    step = lambda: jax.block_until_ready(function(*arrays))  # noqa: E731

    def values():
        value, (gradient, _) = step()
        return [np.asarray(one, "float64") for one in (value, gradient)]

    return step, values
