import keras
from keras import ops

from keras_adaptive.backend.fused_adam import with_penalty


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AveragedSGD(keras.optimizers.Optimizer):
    """Stochastic gradient descent that averages the weights from some update on.

    The steps are plain ones, `p <- p - lr * (g + l2 * p)`, before and after. `begin_averaging()` makes the next update
    the first whose weights count: after k updates from then on, `averages` hold the mean of the weights after each of
    them. Training continues from the weights themselves. The callback `NonMonotonicAveraging` begins to average when
    validation no longer improves, and evaluates and saves the averages (NT-ASGD).

    The averages are an optimizer slot of the size of the weights. Everything is in variables of the optimizer, so that
    a checkpoint is complete.

    Reference:
        Merity, Keskar and Socher, Regularizing and Optimizing LSTM Language Models, ICLR 2018, section 4; Polyak and
        Juditsky, Acceleration of Stochastic Approximation by Averaging (1992).

    Args:
        learning_rate: As in `keras.optimizers.SGD`.
        l2: Factor of every weight in its gradient, an L2 penalty that is added after clipping.
        patience: Number of validations without improvement after which `NonMonotonicAveraging` begins to average.
        **kwargs: The arguments of `keras.optimizers.Optimizer`, such as `global_clipnorm`.

    Raises:
        ValueError: If `l2` is negative or `patience` is below 1.

    Example:

    ```python
    model.compile(AveragedSGD(30.0, l2=1.2e-6, patience=5, global_clipnorm=0.25))
    model.fit(x, y, validation_data=(x_valid, y_valid), epochs=9, callbacks=[NonMonotonicAveraging()])
    ```
    """

    def __init__(self, learning_rate=0.01, *, l2=0.0, patience=5, **kwargs):
        if l2 < 0 or patience < 1:
            raise ValueError(
                "`l2` must not be negative and `patience` must be at least 1. "
                f"Received: l2={l2}, patience={patience}. The published models use 1.2e-6 and 5."
            )
        super().__init__(learning_rate, **kwargs)
        self.l2 = l2
        self.patience = patience

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.averages = self.add_optimizer_variables(variables, "average")
        self.first_averaged = self._number("first_averaged")  # number of an update, from 1; 0 for none yet
        self.swapped = self._number("swapped")  # 1 while the weights and their averages are exchanged

    def _number(self, name):
        return self.add_variable((), dtype="int32", aggregation="only_first_replica", name=name)

    def begin_averaging(self):
        """Makes the next update the first one whose weights count in the averages."""
        self.first_averaged.assign(ops.cast(self.iterations, "int32") + 1)

    def update_step(self, gradient, variable, learning_rate):
        average = self.averages[self._get_variable_index(variable)]
        step = ops.multiply(with_penalty(gradient, variable, self.l2), ops.cast(learning_rate, variable.dtype))
        weight = ops.subtract(ops.stop_gradient(ops.convert_to_tensor(variable)), step)
        first = ops.convert_to_tensor(self.first_averaged)
        count = ops.where(first > 0, ops.cast(self.iterations, "int32") + 2 - first, 1)
        share = ops.divide(ops.subtract(weight, average), ops.cast(count, variable.dtype))
        self.assign(variable, weight)
        self.assign_add(average, share)

    def get_config(self):
        return {**super().get_config(), "l2": self.l2, "patience": self.patience}
