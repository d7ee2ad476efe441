from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.checks import check_equal
from keras_adaptive.backend.replicas import replica_count, replica_index, sum_over_replicas
from keras_adaptive.layers.bodies.body import Body
from keras_adaptive.typing import Tensor


class StreamState(keras.layers.Layer):
    """State of a body after a batch, from which the next batch continues.

    Row r of a batch continues the text of row r of the previous batch. Non-trainable variables hold the state, one row
    per stream. Every replica holds all rows, so that a checkpoint of any replica is complete. The variables are not
    weights and do not count as parameters.

    Args:
        body: A `Body`.
        rows: Number of streams, which is the number of rows of a batch over all replicas.

    Reference:
        Merity et al., An Analysis of Neural Language Modeling at Multiple Scales, 2018, section 3.
    """

    def __init__(self, body: Body, rows: int, **kwargs: Any) -> None:
        super().__init__(trainable=False, **kwargs)
        self.rows = rows
        for number, part in enumerate(keras.tree.flatten(body.initial_state(rows))):
            self.add_weight(
                shape=part.shape,
                dtype=keras.backend.standardize_dtype(part.dtype),
                initializer="zeros",
                aggregation="only_first_replica",
                trainable=False,
                autocast=False,
                name=f"state_{number}",
            )
        self.built = True

    @property
    def weights(self) -> list[keras.Variable]:
        return []

    def read(self, begins: Tensor, empty: Any) -> Any:
        """Returns the state of this replica's rows: `empty`, the body's initial state, in rows that begin a text."""
        rows = check_equal(
            ops.shape(begins)[0] * replica_count(),
            self.rows,
            "`stream_rows` must be the number of rows of a batch over all replicas. "
            f"Received: stream_rows={self.rows}, and another number of rows on {replica_count()} replicas.",
        )
        rows = rows // replica_count()

        def local(variable, start):
            value = ops.convert_to_tensor(variable.value)
            part = ops.slice(value, _first_place(rows, variable), [rows, *variable.shape[1:]])
            return ops.where(ops.reshape(begins, [rows, *[1] * (len(variable.shape) - 1)]), start, part)

        parts = map(local, self.variables, keras.tree.flatten(empty))
        return keras.tree.pack_sequence_as(empty, list(parts))

    def write(self, state: Any, empty: Any) -> None:
        """Stores the state of this replica's rows, with `empty` in rows not finite, which would not recover."""
        parts = keras.tree.flatten(state)
        numbers = [part for part in parts if keras.backend.is_float_dtype(part.dtype)]
        finite = ops.all(ops.stack(list(map(_finite_rows, numbers))), axis=0)
        parts = [
            ops.where(ops.reshape(finite, (-1, *[1] * (len(part.shape) - 1))), part, start)
            for part, start in zip(parts, keras.tree.flatten(empty))
        ]
        if replica_count() > 1:  # a sum over replicas, each of which has zeros in the rows of the others
            parts = sum_over_replicas([_among_zeros(part, variable) for part, variable in zip(parts, self.variables)])
        for variable, value in zip(self.variables, parts):
            variable.assign(ops.cast(value, variable.dtype))


def _first_place(rows, variable):
    """Returns the index of this replica's first row in a variable that holds the rows of all replicas."""
    return [replica_index() * rows, *[0] * (len(variable.shape) - 1)]


def _among_zeros(part, variable):
    """Returns an array of the rows of all replicas with this replica's rows; the others are 0."""
    zeros = ops.zeros(variable.shape, part.dtype)
    return ops.slice_update(zeros, _first_place(ops.shape(part)[0], variable), part)


def _finite_rows(part):
    """Returns whether all values of each row are finite, (rows,)."""
    return ops.all(ops.isfinite(part), axis=tuple(range(1, len(part.shape))))
