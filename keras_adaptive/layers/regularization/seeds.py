"""Generators of seeds, and which micro-batch of an update draws from them."""

import contextlib
import contextvars

import keras
from keras import ops

from keras_adaptive.backend.replicas import replica_index

STRIDE = 0x61C88647  # between the seeds of replicas: further than a layer reaches by counting
_MICRO_BATCH = contextvars.ContextVar("micro_batch", default=0)  # of this thread, which may be a replica


class ReplicaSeedGenerator(keras.random.SeedGenerator):
    """A `keras.random.SeedGenerator` that gives every replica its own seeds, from one shared state."""

    def next(self, ordered=True):
        seed, replica = super().next(ordered), replica_index()
        if isinstance(replica, int) and replica == 0:
            return seed
        shift = ops.cast(replica, seed.dtype) * STRIDE  # wraps around
        return seed + ops.stack([shift, ops.zeros_like(shift)])


class SharedSeedGenerator(keras.random.SeedGenerator):
    """A `keras.random.SeedGenerator` that gives all micro-batches of an update, on all replicas, the same seed.

    It serves layers that draw once in a forward pass.
    """

    def next(self, ordered=True):
        if _MICRO_BATCH.get() > 0:  # returns to the state before the micro-batch that came first
            self.state.assign(self.state.value - ops.convert_to_tensor([0, 1], self.state.dtype))
        return super().next(ordered)


class UpdateSeedGenerator(SharedSeedGenerator, ReplicaSeedGenerator):
    """A `ReplicaSeedGenerator` that gives all micro-batches of an update the same seed."""


@contextlib.contextmanager
def micro_batch(number):
    """Computes micro-batch `number` of an update in this context; the first one has the number 0."""
    token = _MICRO_BATCH.set(number)
    try:
        yield
    finally:
        _MICRO_BATCH.reset(token)
