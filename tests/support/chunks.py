"""Chunks of other sizes than the ones of this machine."""

import keras

from keras_adaptive.ops import chunks


def set_chunk_sizes(monkeypatch, **sizes):
    """Replaces sizes of chunks on this machine, by the names of `ChunkSizes`."""
    changed = chunks.chunk_sizes()._replace(**sizes)
    monkeypatch.setattr(chunks, "ACCELERATOR", changed)
    monkeypatch.setitem(chunks.CPU, keras.config.backend(), changed)


def pretend_accelerator(monkeypatch, accelerator=True):
    """Chooses chunks as on a machine with an accelerator, or as on one without."""
    monkeypatch.setattr(chunks, "on_accelerator", lambda: accelerator)
