"""Results of a function in the rows that need it, chunk by chunk."""

from keras import ops

from keras_adaptive.ops.active_rows import over_active_rows
from keras_adaptive.ops.linear_cross_entropy import default_chunk_rows


def update_rows(function, active, inputs, outputs, columns):
    """Returns `outputs` with the results of `function` in the active rows.

    The rows are processed in chunks, so that the (rows, columns) array that `function` makes exists for one chunk at a
    time. Rows that are not active cost nothing. For inference: there are no gradients.

    Args:
        function: Function of tensors with the rows of a chunk that returns a list of tensors, one per output.
        active: Bool tensor (rows,).
        inputs: List of tensors with `rows` rows, the arguments of `function`.
        outputs: List of tensors with `rows` rows, which are not changed.
        columns: Number of columns of the largest array that `function` makes.

    Returns:
        A tuple of tensors shaped like `outputs`.
    """
    rows = active.shape[0]
    chunk_rows = default_chunk_rows(rows and -(-rows // 2), columns)
    chunk_rows = min(rows, chunk_rows) if rows else chunk_rows
    copies = [ops.copy(output) for output in outputs]  # torch writes into them
    body = lambda rows, live, carry: (function(*rows), carry)  # noqa: E731
    return over_active_rows(body, active, inputs, copies, [], chunk_rows)[0]
