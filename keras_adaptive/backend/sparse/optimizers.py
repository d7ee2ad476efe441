"""Optimizers whose step reads and writes only the rows of a table that have a gradient."""

from collections.abc import Callable

import keras
from keras import ops

from keras_adaptive.backend.known_options import has_known_options
from keras_adaptive.backend.ordering import computed_after
from keras_adaptive.backend.sparse.gradients import RowGradient, read_rows
from keras_adaptive.typing import Tensor

OF_WHOLE_TABLES = (
    *("weight_decay", "clipnorm", "clipvalue", "use_ema", "gradient_accumulation_steps", "loss_scale_factor"),
    "amsgrad",
)


class RowUpdates:
    """Mixin for Keras optimizers that updates only the rows of a table that its `RowGradient` contains.

    A subclass implements `row_changes`, and names in `row_slots` its lists of a variable per trainable variable.
    """

    row_slots: tuple[str, ...] = ()
    _get_variable_index: Callable[[keras.Variable], int]  # of Keras

    def row_changes(self, gradient: Tensor, slots: list[Tensor], learning_rate: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Returns the changes that a step makes to rows. They must be 0 where the gradient (n, …) is 0.

        The `slots` are the rows of the slots, (n, …) each. Returned are the tensor (n, …) that is added to the rows of
        the table, and a list of those that are added to the rows of the slots.
        """
        raise NotImplementedError(f"`{type(self).__name__}` must implement `row_changes`.")

    def update_step(self, gradient, variable, learning_rate):
        if not isinstance(gradient, RowGradient):
            super().update_step(gradient, variable, learning_rate)
            return
        slots = self.slots_of(variable)
        rows = [read_rows(slot, gradient.ids) for slot in slots]
        values = ops.cast(gradient.values, variable.dtype)
        change, changes = self.row_changes(values, rows, ops.cast(learning_rate, variable.dtype))
        _add_rows(variable, gradient.ids, change)
        for slot, slot_change, old in zip(slots, changes, rows, strict=True):
            _add_rows(slot, gradient.ids, computed_after(slot_change, old))

    def slots_of(self, variable: keras.Variable) -> list[keras.Variable]:
        """Returns the slots of a variable."""
        index = self._get_variable_index(variable)
        return [getattr(self, name)[index] for name in self.row_slots]

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if keras.config.backend() == "torch":  # kernels for all variables at once do not support rows
            pairs = list(zip(grads, trainable_variables, strict=True))
            for gradient, variable in pairs:
                if isinstance(gradient, RowGradient):
                    self.update_step(gradient, variable, learning_rate)
            pairs = [pair for pair in pairs if not isinstance(pair[0], RowGradient)]
            grads, trainable_variables = zip(*pairs) if pairs else ((), ())
        if grads:
            super()._backend_update_step(list(grads), list(trainable_variables), learning_rate)


class RowSGD(RowUpdates, keras.optimizers.SGD):
    """Implements `keras.optimizers.SGD` without momentum, by rows."""

    def row_changes(self, gradient: Tensor, slots: list[Tensor], learning_rate: Tensor) -> tuple[Tensor, list[Tensor]]:
        return -learning_rate * gradient, []


class RowAdagrad(RowUpdates, keras.optimizers.Adagrad):
    """Implements `keras.optimizers.Adagrad` by rows: without a gradient, a row and its accumulator do not change."""

    row_slots = ("_accumulators",)

    def row_changes(self, gradient: Tensor, slots: list[Tensor], learning_rate: Tensor) -> tuple[Tensor, list[Tensor]]:
        squares = ops.square(gradient)
        return -(learning_rate * gradient) / ops.sqrt(slots[0] + squares + self.epsilon), [squares]


def row_kind(optimizer):
    """Returns the class that takes the steps of an optimizer by rows, or None if there is none.

    Momentum, decay and averages of weights change every row in every step. `clipvalue` and `clipnorm` are applied by
    Keras, which supports only dense gradients. So do options that are unknown.
    """
    if not has_known_options(optimizer) or any(getattr(optimizer, name, None) for name in OF_WHOLE_TABLES):
        return None
    if isinstance(optimizer, RowUpdates):
        return type(optimizer)
    of_keras = type(optimizer).__module__.startswith("keras.")
    if of_keras and isinstance(optimizer, keras.optimizers.Adagrad):
        return RowAdagrad
    if of_keras and isinstance(optimizer, keras.optimizers.SGD) and not optimizer.momentum:
        return RowSGD
    return None


def _add_rows(variable, ids, values):
    """Adds values to rows of a variable in place. The cost depends only on the number of rows."""
    _ADDERS[keras.config.backend()](variable, ids, values)


def _add_tensorflow(variable, ids, values):
    import tensorflow as tf

    variable = variable.value if isinstance(variable, keras.Variable) else variable  # bare under a strategy
    variable.scatter_add(tf.IndexedSlices(values, ids))


def _add_jax(variable, ids, values):
    variable.assign(ops.convert_to_tensor(variable.value).at[ids].add(values))


def _add_torch(variable, ids, values):
    import torch

    with torch.no_grad():
        variable.value.index_add_(0, ids, values)


_ADDERS = {"tensorflow": _add_tensorflow, "jax": _add_jax, "torch": _add_torch}
