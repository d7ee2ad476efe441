"""Loops over the active rows of a batch, one chunk at a time."""

import keras
from keras import ops

from keras_adaptive.backend.ordering import computed_in_loop
from keras_adaptive.ops.chunks import default_chunk_rows


def over_active_rows(body, active, inputs, outputs, carry, chunk_rows):
    """Runs `body` over the active rows in chunks; inactive rows cost nothing.

    Every shape is static and the number of chunks is a run-time value, so that the same loop runs under `tf.function`,
    XLA and `jax.jit`. There the last chunk is padded with copies of an active row; under eager torch it is shorter.

    Args:
        body: Function `(inputs, live, carry) → (outputs, carry)` of one chunk: tensors of at most `chunk_rows` rows,
            and `live` (chunk_rows,) bool, False for a row that only pads the last chunk and whose outputs are dropped.
        active: Bool tensor (rows,).
        inputs: Tensors of `rows` rows, gathered chunk by chunk.
        outputs: Tensors of `rows` rows, the results of inactive rows. torch writes into them.
        carry: Tensors that are passed from chunk to chunk. Under torch `body` may write into them.
        chunk_rows: Number of rows per chunk.

    Returns:
        `(outputs, carry)`: the outputs with the results of the active rows, and the carry after the last chunk.
    """
    loop = _torch_loop if keras.config.backend() == "torch" else _while_loop
    return loop(body, active, tuple(inputs), tuple(outputs), tuple(carry), chunk_rows)


def _torch_loop(body, active, inputs, outputs, carry, chunk_rows):
    rows = active.nonzero()[:, 0]
    for index in rows.split(chunk_rows) if len(rows) else ():
        results, carry = body([tensor[index] for tensor in inputs], active[index], carry)
        for output, result in zip(outputs, results, strict=True):
            output[index] = result.to(output.dtype)
    return outputs, carry


def _while_loop(body, active, inputs, outputs, carry, chunk_rows):
    if active.shape[0] == 0:
        return outputs, carry
    rows = ops.shape(active)[0]
    if active.shape[0] is None:  # in a TensorFlow graph, whose requests have few rows
        chunk_rows = ops.minimum(chunk_rows, ops.maximum(rows, 1))
    count = ops.sum(ops.cast(active, "int32"))
    order = ops.cast(ops.argsort(ops.cast(~active, "int32")), "int32")  # the active rows first
    order = ops.pad(order, [[0, -rows % chunk_rows]])
    # An extra row receives the results of the padding of the last chunk.
    outputs = tuple(ops.pad(output, [[0, 1]] + [[0, 0]] * (len(output.shape) - 1)) for output in outputs)

    def step(chunk, outputs, carry):
        start = chunk * chunk_rows
        live = start + ops.arange(chunk_rows) < count
        index = computed_in_loop(ops.where(live, ops.slice(order, [start], [chunk_rows]), order[0]), chunk)
        results, carry = body([ops.take(tensor, index, axis=0) for tensor in inputs], live, carry)
        place = ops.where(live, index, rows)[:, None]
        outputs = tuple(
            ops.scatter_update(output, place, ops.cast(result, output.dtype))
            for output, result in zip(outputs, results, strict=True)
        )
        return chunk + 1, outputs, tuple(carry)

    chunks = (count + chunk_rows - 1) // chunk_rows
    _, outputs, carry = one_by_one(lambda chunk, *_: chunk < chunks, step, (0, outputs, carry))
    return tuple(output[:rows] for output in outputs), carry


def one_by_one(condition, body, state):
    """Runs `ops.while_loop` one chunk at a time; by default TensorFlow runs ten at once and holds their logits."""
    if keras.config.backend() == "torch":
        while condition(*state):
            state = body(*state)
        return state
    if keras.config.backend() == "jax":
        return ops.while_loop(condition, body, state)
    import tensorflow as tf

    return tf.while_loop(condition, body, state, parallel_iterations=1)


def update_rows(function, active, inputs, outputs, columns=None, chunk_rows=None):
    """Returns copies of `outputs`, tensors of `rows` rows, in which the results of `function` replace the active rows.

    `function` gets the rows of a chunk of each input and returns a list of tensors, one per output. The (rows, columns)
    array that it computes exists for one chunk at a time, of `chunk_rows` if it is given. Inactive rows cost nothing.
    The results have no gradients.
    """
    rows = active.shape[0]
    chunk_rows = chunk_rows or default_chunk_rows(rows and -(-rows // 2), columns)
    chunk_rows = min(rows, chunk_rows) if rows else chunk_rows
    copies = [ops.copy(output) for output in outputs]  # torch writes into them
    body = lambda rows, live, carry: (function(*rows), carry)  # noqa: E731
    return over_active_rows(body, active, inputs, copies, [], chunk_rows)[0]
