from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.fused_adam import with_penalty
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AveragedSGD(keras.optimizers.Optimizer):
    """Implements averaged stochastic gradient descent (ASGD).

    Every step is a step of plain gradient descent, `p <- p - lr * (g + l2 * p)`. Averaging starts with the update that
    follows `begin_averaging()`: `averages` then hold the mean of the weights after each of these updates. The averages
    do not influence the steps. The callback `NonMonotonicAveraging` starts averaging when validation no longer
    improves, and evaluates and saves the averages (NT-ASGD).

    The averages are an optimizer slot of the size of the weights. The complete state is in variables of the optimizer,
    so that a checkpoint contains it.

    Args:
        learning_rate: A float, a `keras.optimizers.schedules.LearningRateSchedule`, or a callable without
            arguments that returns the rate.
        l2: Factor of the L2 penalty. `l2` times the weight is added to its gradient, after clipping.
        patience: Number of validations without improvement after which `NonMonotonicAveraging` starts averaging.
        **kwargs: The arguments of `keras.optimizers.Optimizer`, such as `global_clipnorm`.

    Raises:
        ValueError: If `l2` is negative or `patience` is below 1.

    Reference:
        Merity, Keskar and Socher, Regularizing and Optimizing LSTM Language Models, ICLR 2018, section 4; Polyak and
        Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992.

    Example:

    ```python
    model.compile(AveragedSGD(30.0, l2=1.2e-6, patience=5, global_clipnorm=0.25))
    model.fit(x, y, validation_data=(x_valid, y_valid), epochs=9, callbacks=[NonMonotonicAveraging()])
    ```
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule | Callable[[], float] = 0.01,
        *,
        l2: float = 0.0,
        patience: int = 5,
        **kwargs: Any,
    ) -> None:
        if l2 < 0 or patience < 1:
            raise ValueError(
                "`l2` must not be negative and `patience` must be at least 1. "
                f"Received: l2={l2}, patience={patience}. The published models use 1.2e-6 and 5."
            )
        super().__init__(learning_rate, **kwargs)
        self.l2 = l2
        self.patience = patience

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.averages = self.add_optimizer_variables(variables, "average")
        self.first_averaged = self._number("first_averaged")  # number of an update, counted from 1; 0 before averaging
        self.swapped = self._number("swapped")  # 1 while the weights and their averages are exchanged

    def _number(self, name):
        return self.add_variable((), dtype="int32", aggregation="only_first_replica", name=name)

    def begin_averaging(self) -> None:
        """Starts averaging with the weights of the next update."""
        self.first_averaged.assign(ops.cast(self.iterations, "int32") + 1)

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor) -> None:
        average = self.averages[self._get_variable_index(variable)]
        step = ops.multiply(with_penalty(gradient, variable, self.l2), ops.cast(learning_rate, variable.dtype))
        weight = ops.subtract(ops.stop_gradient(ops.convert_to_tensor(variable)), step)
        first = ops.convert_to_tensor(self.first_averaged)
        count = ops.where(first > 0, ops.cast(self.iterations, "int32") + 2 - first, 1)
        share = ops.divide(ops.subtract(weight, average), ops.cast(count, variable.dtype))
        self.assign(variable, weight)
        self.assign_add(average, share)

    def get_config(self) -> dict:
        return {**super().get_config(), "l2": self.l2, "patience": self.patience}
