"""Generators of seeds, and the micro-batch of an update that draws from them."""

import contextlib
import contextvars

import keras
from keras import ops

from keras_adaptive.backend.replicas import replica_index

STRIDE = 0x61C88647  # distance between the seeds of replicas, larger than any number of calls of a layer
_MICRO_BATCH = contextvars.ContextVar("micro_batch", default=0)  # per thread, since a replica may be a thread


class ReplicaSeedGenerator(keras.random.SeedGenerator):
    """A `keras.random.SeedGenerator` that derives different seeds for every replica from one shared state."""

    def next(self, ordered=True):
        seed, replica = super().next(ordered), replica_index()
        if isinstance(replica, int) and replica == 0:
            return seed
        shift = ops.cast(replica, seed.dtype) * STRIDE  # wraps around
        return seed + ops.stack([shift, ops.zeros_like(shift)])


class SharedSeedGenerator(keras.random.SeedGenerator):
    """A `keras.random.SeedGenerator` that gives all micro-batches of an update, on all replicas, the same seed.

    Layers that draw once per forward pass use it.
    """

    def next(self, ordered=True):
        if current_micro_batch() > 0:  # returns to the state before the first micro-batch
            self.state.assign(self.state.value - ops.convert_to_tensor([0, 1], self.state.dtype))
        return super().next(ordered)


class UpdateSeedGenerator(SharedSeedGenerator, ReplicaSeedGenerator):
    """A `ReplicaSeedGenerator` that gives all micro-batches of an update the same seed."""


def current_micro_batch():
    """Returns the number of the current micro-batch of an update, 0 for the first one and outside of updates."""
    return _MICRO_BATCH.get()


@contextlib.contextmanager
def micro_batch(number):
    """Marks the computation in this context as micro-batch `number` of an update, counted from 0."""
    token = _MICRO_BATCH.set(number)
    try:
        yield
    finally:
        _MICRO_BATCH.reset(token)
