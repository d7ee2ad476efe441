"""Results of a function for the active rows of a batch, one chunk at a time."""

from keras import ops

from keras_adaptive.ops.active_rows import over_active_rows
from keras_adaptive.ops.chunks import default_chunk_rows


def update_rows(function, active, inputs, outputs, columns):
    """Returns copies of `outputs` in which the results of `function` replace the active rows.

    The rows are processed in chunks, so that the (rows, columns) array that `function` computes exists for one chunk at
    a time. Inactive rows cost nothing. The results have no gradients.

    Args:
        function: Function of tensors with the rows of a chunk, which returns a list of tensors, one per output.
        active: Bool tensor (rows,).
        inputs: List of tensors with `rows` rows, the arguments of `function`.
        outputs: List of tensors with `rows` rows.
        columns: Number of columns of the largest array that `function` computes.

    Returns:
        A tuple of tensors shaped like `outputs`.
    """
    rows = active.shape[0]
    chunk_rows = default_chunk_rows(rows and -(-rows // 2), columns)
    chunk_rows = min(rows, chunk_rows) if rows else chunk_rows
    copies = [ops.copy(output) for output in outputs]  # torch writes into them
    body = lambda rows, live, carry: (function(*rows), carry)  # noqa: E731
    return over_active_rows(body, active, inputs, copies, [], chunk_rows)[0]
