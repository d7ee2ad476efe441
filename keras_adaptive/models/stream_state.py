import keras
from keras import ops

from keras_adaptive.backend.checks import check_equal
from keras_adaptive.backend.replicas import replica_count, replica_index, sum_over_replicas


class StreamState(keras.layers.Layer):
    """State of a body after a batch, from which the next batch continues.

    Row r of a batch continues the text of row r of the batch before. The state is held in non-trainable variables,
    one row per stream, and every replica holds all rows: a checkpoint of any replica is complete. The variables are
    not weights, so that they do not count as parameters.

    Reference:
        Merity et al., An Analysis of Neural Language Modeling at Multiple Scales (2018), section 3.

    Args:
        body: A `Body`.
        rows: Number of streams, the rows of a batch over all replicas.
    """

    def __init__(self, body, rows, **kwargs):
        super().__init__(trainable=False, **kwargs)
        self.rows = rows
        for number, part in enumerate(keras.tree.flatten(body.initial_state(rows))):
            self.add_weight(
                shape=part.shape,
                dtype=keras.backend.standardize_dtype(part.dtype),
                initializer="zeros",
                aggregation="only_first_replica",
                autocast=False,
                name=f"state_{number}",
            )
        self.built = True

    @property
    def weights(self):
        return []

    def read(self, begins, empty):
        """Returns the state of this replica's rows, replaced by `empty` in rows that begin a new text.

        Args:
            begins: Bool tensor (rows of this replica,).
            empty: The body's initial state for these rows.
        """
        rows = check_equal(
            ops.shape(begins)[0] * replica_count(),
            self.rows,
            "`stream_rows` must be the rows of a batch, over all replicas. "
            f"Received: stream_rows={self.rows}, {replica_count()} times a batch of other rows.",
        )
        rows = rows // replica_count()

        def local(variable, start):
            value = ops.convert_to_tensor(variable.value)
            part = ops.slice(value, _first_place(rows, variable), [rows, *variable.shape[1:]])
            return ops.where(ops.reshape(begins, [rows, *[1] * (len(variable.shape) - 1)]), start, part)

        parts = map(local, self.variables, keras.tree.flatten(empty))
        return keras.tree.pack_sequence_as(empty, list(parts))

    def write(self, state, empty):
        """Stores the state of this replica's rows. A row that is not finite would never recover, so it is reset.

        Args:
            state: The state that the body returned.
            empty: The body's initial state for these rows.
        """
        parts = [
            ops.where(_finite_rows(part), part, start)
            for part, start in zip(keras.tree.flatten(state), keras.tree.flatten(empty))
        ]
        if replica_count() > 1:  # each puts its own rows among zeros, and the results are summed in one exchange
            parts = sum_over_replicas([_among_zeros(part, variable) for part, variable in zip(parts, self.variables)])
        for variable, value in zip(self.variables, parts):
            variable.assign(ops.cast(value, variable.dtype))


def _first_place(rows, variable):
    """Returns where this replica's rows begin in a variable that holds the rows of all replicas."""
    return [replica_index() * rows, *[0] * (len(variable.shape) - 1)]


def _among_zeros(part, variable):
    """Returns this replica's rows at their place among the rows of all replicas, the others 0."""
    zeros = ops.zeros(variable.shape, part.dtype)
    return ops.slice_update(zeros, _first_place(ops.shape(part)[0], variable), part)


def _finite_rows(part):
    """Returns whether all values of each row are finite, (rows, 1, …)."""
    return ops.all(ops.isfinite(part), axis=tuple(range(1, len(part.shape))), keepdims=True)
