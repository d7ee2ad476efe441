"""Division of a batch into micro-batches."""

import keras
from keras import ops

from keras_adaptive.backend.checks import check_equal


def divided(arrays, count):
    """Divides a nested structure of arrays evenly along the first axis, into a list of `count` structures."""
    flat = keras.tree.flatten(arrays)
    if not flat:
        return [arrays] * count
    rows = ops.shape(flat[0])[0]
    batch = f"a batch of {rows if isinstance(rows, int) else 'another size'}"
    message = f"`micro_batches` must divide the batch. Received: micro_batches={count}, {batch}."
    check_equal(rows % count, 0, message)
    size = rows // count
    parts = [[array[part * size : (part + 1) * size] for array in flat] for part in range(count)]
    return [keras.tree.pack_sequence_as(arrays, part) for part in parts]


def joined(states):
    """Returns the state of the batch, joined from the states of its micro-batches."""
    if len(states) == 1:
        return states[0]
    return keras.tree.map_structure(lambda *parts: ops.concatenate(parts, axis=0), *states)
