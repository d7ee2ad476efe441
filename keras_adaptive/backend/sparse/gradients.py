"""Reads rows of tables, and represents gradients that are zero outside of these rows."""

import contextlib
import contextvars
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_adaptive.backend.first_of_runs import first_of_runs
from keras_adaptive.backend.replicas import gather_over_replicas

_READER = contextvars.ContextVar("reader", default=None)  # one per thread, because a thread may be a replica


class RowGradient(NamedTuple):
    """Gradient of a table (rows, …) that is zero outside of a few rows.

    Args:
        ids: Int32 tensor (n,), the rows. `summed_by_row` makes them distinct, except for padding, which repeats a row
            with the value 0.
        values: Tensor (n, …), the gradient of each row.
    """

    ids: Any
    values: Any


def take_rows(variable, ids):
    """Returns the rows `ids` of a variable (rows, …), so that training can compute a gradient of these rows only.

    A layer may list a table among its `row_variables` if training reads the table only by this function.
    """
    reader = _READER.get()
    if reader is None or id(variable) not in reader.readable:
        return ops.take(variable, ids, axis=0)
    return reader.take(variable, ids)


def read_rows(variable, ids):
    """Returns rows of a variable such that it can be updated in place afterwards.

    Under TensorFlow, a variable whose whole value was read in the same step would be copied before the update.
    """
    if keras.config.backend() != "tensorflow":
        return ops.take(variable, ids, axis=0)
    import tensorflow as tf

    variable = variable.value if isinstance(variable, keras.Variable) else variable  # bare under a strategy
    return tf.gather(variable, ids)


class RowReader:
    """Records the reads of variables by `take_rows` inside `reading()`.

    Every read returns a tensor that replaces the variable in the differentiated function. The gradient of this tensor
    is the gradient of the rows.

    Args:
        variables: The variables.
        watch: Function `(rows, k)` that returns the tensor to replace the rows of read number k.
        others: Further variables whose reads are recorded, but which are not part of `gradients`.
    """

    def __init__(self, variables, watch, others=()):
        self.variables = list(variables)
        self.watch = watch
        self.readable = set(map(id, [*variables, *others]))
        self.read, self.ids, self.rows = [], [], []  # the variable, ids and watched rows of every read

    @contextlib.contextmanager
    def reading(self):
        token = _READER.set(self)
        try:
            yield
        finally:
            _READER.reset(token)

    def take(self, variable, ids):
        rows = self.watch(ops.stop_gradient(read_rows(variable, ids)), len(self.rows))
        self.read.append(variable)
        self.ids.append(ids)
        self.rows.append(rows)
        return rows

    def gradients(self, ids, of_rows):
        """Returns a `RowGradient` per variable from the ids and the gradients of all reads."""
        result = []
        for variable in self.variables:
            places = [place for place, read in enumerate(self.read) if read is variable]
            parts = [ops.cast(ops.reshape(ids[place], [-1]), "int32") for place in places]
            values = [ops.reshape(of_rows[place], (-1, *variable.shape[1:])) for place in places]
            result.append(_joined(variable, parts, values))
        return result


def added(first, second):
    """Returns the sum of two gradients of a variable, which are both tensors or both a `RowGradient`."""
    if not isinstance(first, RowGradient):
        return first + second
    return RowGradient(*(ops.concatenate(pair) for pair in zip(first, second)))


def summed_by_row(gradient):
    """Sums a `RowGradient` over all replicas and over equal ids. Other gradients are returned unchanged.

    The ids of the result are distinct, except for padding.
    """
    if not isinstance(gradient, RowGradient):
        return gradient
    ids, values = (gather_over_replicas(tensor) for tensor in gradient)
    return RowGradient(*_SUMS[keras.config.backend()](ids, values))


def _joined(variable, ids, values):
    if not ids:  # the function did not read the variable
        return RowGradient(ops.zeros((1,), "int32"), ops.zeros((1, *variable.shape[1:]), variable.dtype))
    return RowGradient(ids[0], values[0]) if len(ids) == 1 else RowGradient(*map(ops.concatenate, (ids, values)))


def _sum_sorted(ids, values):
    """Sums rows with static shapes: n rows yield n rows, of which the last ones may be padding."""
    order = ops.argsort(ids)
    in_order = ops.take(ids, order)
    first = first_of_runs(in_order)
    places = ops.cumsum(ops.cast(first, "int32")) - 1
    count = ids.shape[0]
    sums = ops.segment_sum(ops.take(values, order, axis=0), places, num_segments=count, sorted=True)
    distinct = ops.segment_max(in_order, places, num_segments=count, sorted=True)
    return ops.where(ops.arange(count) <= places[-1], distinct, in_order[0]), sums


def _sum_unique(ids, values):
    import tensorflow as tf

    distinct, places = tf.unique(ids)
    return distinct, tf.math.unsorted_segment_sum(values, places, tf.size(distinct))


def _sum_torch(ids, values):
    import torch

    distinct, places = torch.unique(ids, return_inverse=True)
    if len(distinct) == len(ids):
        return ids, values
    return distinct, values.new_zeros((len(distinct), *values.shape[1:])).index_add_(0, places, values)


_SUMS = {"tensorflow": _sum_unique, "jax": _sum_sorted, "torch": _sum_torch}
