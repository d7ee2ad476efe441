from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.fused_step import fused_step
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class NAG(keras.optimizers.Optimizer):
    """Implements Nesterov's accelerated gradient, exactly under a changing learning rate.

    The update with gradient `g`, momentum `mu` and learning rate `lr` is:

    ```
    u <- mu * u + g
    p <- p - lr * (g + mu * u)
    ```

    The buffer `u` does not contain the learning rate, so a change of the rate acts on the whole step at once.
    `keras.optimizers.SGD(nesterov=True)` keeps the rate inside its buffer. The two agree only while the rate is
    constant, and differ under a warm-up or annealing. `torch.optim.SGD(nesterov=True)` takes the same steps as `NAG`.

    `weight_decay` is decoupled: `p` is multiplied by `1 - lr * weight_decay` before the step.

    Args:
        learning_rate: A float, a `keras.optimizers.schedules.LearningRateSchedule`, or a callable without
            arguments that returns the rate.
        momentum: A float, 0 <= momentum < 1.
        **kwargs: The arguments of `keras.optimizers.Optimizer`: `weight_decay`, `global_clipnorm`,
            `clipnorm`, `clipvalue`, `use_ema`, `name` and so on.

    Raises:
        ValueError: If `momentum` is outside [0, 1).

    Reference:
        Sutskever et al., On the importance of initialization and momentum in deep learning, ICML 2013, section 2; used
        by Baevski and Auli, Adaptive Input Representations for Neural Language Modeling, ICLR 2019, section 4.5.

    Example:

    ```python
    optimizer = NAG(learning_rate=1.0, momentum=0.99, global_clipnorm=0.1)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer, loss="mse")
    model.fit(np.ones((8, 3)), np.ones((8, 1)))
    ```
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule | Callable[[], float] = 0.01,
        momentum: float = 0.99,
        **kwargs: Any,
    ) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(
                f"`momentum` must be at least 0 and below 1. Received: momentum={momentum}. "
                "The published language models use 0.99."
            )
        super().__init__(learning_rate, **kwargs)
        self.momentum = momentum

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.momentums = self.add_optimizer_variables(variables, "momentum")

    def apply(self, grads: list[Tensor], trainable_variables: list[keras.Variable] | None = None) -> None:
        """Updates the variables by their gradients.

        Under TensorFlow, the gradient of an embedding may contain a word several times. Its rows are summed per word
        first, so that clipping and momentum use the sums.
        """
        if keras.config.backend() == "tensorflow":
            import tensorflow as tf

            grads = [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient in grads]
        super().apply(grads, trainable_variables)

    def update_step(self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor) -> None:
        gradient = ops.cast(gradient, variable.dtype)
        learning_rate = ops.cast(learning_rate, variable.dtype)
        momentum = ops.cast(self.momentum, variable.dtype)
        buffer = self.momentums[self._get_variable_index(variable)]
        if keras.config.backend() == "tensorflow":
            _tensorflow_update(variable, buffer, gradient, learning_rate, momentum)
            return
        self.assign(buffer, ops.add(ops.multiply(buffer, momentum), gradient))
        step = ops.add(ops.multiply(buffer, momentum), gradient)
        self.assign_sub(variable, ops.multiply(step, learning_rate))

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if keras.config.backend() == "torch":
            fused_step(self, grads, trainable_variables, learning_rate, (self.momentums,), self._torch_kernel)
        else:
            super()._backend_update_step(grads, trainable_variables, learning_rate)

    def _torch_kernel(self, parameters, gradients, buffers, learning_rate):
        from torch.optim.sgd import sgd

        sgd(
            parameters,
            gradients,
            buffers,
            fused=True,
            lr=learning_rate,
            momentum=self.momentum,
            nesterov=self.momentum > 0,
            dampening=0.0,
            weight_decay=0.0,
            maximize=False,
        )

    def get_config(self) -> dict:
        return {**super().get_config(), "momentum": self.momentum}


def _tensorflow_update(variable, buffer, gradient, learning_rate, momentum):
    """Updates a variable by TensorFlow's kernel, which passes over memory twice; single operations need six passes."""
    import tensorflow as tf

    variable = variable.value if isinstance(variable, keras.Variable) else variable  # a strategy passes a tf.Variable
    tf.raw_ops.ResourceApplyMomentum(
        var=variable.handle,
        accum=buffer.value.handle,
        lr=learning_rate,
        grad=gradient,
        momentum=momentum,
        use_nesterov=True,
    )
