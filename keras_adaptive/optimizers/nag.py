import keras
from keras import ops

from keras_adaptive.backend.fused_step import fused_step


@keras.saving.register_keras_serializable(package="keras_adaptive")
class NAG(keras.optimizers.Optimizer):
    """Nesterov's accelerated gradient, exact under a changing learning rate.

    With gradient `g`, momentum `mu` and the rate `lr` of this update:

    ```
    u <- mu * u + g
    p <- p - lr * (g + mu * u)
    ```

    The buffer `u` holds gradients and no rate, so a change of rate acts on the whole step at once.
    `keras.optimizers.SGD(nesterov=True)` keeps the rate inside its buffer: the two agree only while the rate
    is constant, and differ under a warm-up or an annealing. `torch.optim.SGD(nesterov=True)` is this form.

    `weight_decay` is decoupled: `p` is multiplied by `1 - lr * weight_decay` before the step.

    Reference:
        Sutskever et al., On the importance of initialization and momentum in deep learning (2013), section 2; used
        by Baevski & Auli, Adaptive Input Representations for Neural Language Modeling (2019), section 4.5.

    Args:
        learning_rate: A float, a `keras.optimizers.schedules.LearningRateSchedule`, or a callable without
            arguments that returns the rate.
        momentum: A float, 0 <= momentum < 1.
        **kwargs: The arguments of `keras.optimizers.Optimizer`: `weight_decay`, `global_clipnorm`,
            `clipnorm`, `clipvalue`, `use_ema`, `name` and so on.

    Raises:
        ValueError: If `momentum` is outside [0, 1).

    Example:

    ```python
    optimizer = NAG(learning_rate=1.0, momentum=0.99, global_clipnorm=0.1)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer, loss="mse")
    model.fit(np.ones((8, 3)), np.ones((8, 1)))
    ```
    """

    def __init__(self, learning_rate=0.01, momentum=0.99, **kwargs):
        if not 0 <= momentum < 1:
            raise ValueError(
                f"`momentum` must be at least 0 and below 1. Received: momentum={momentum}. "
                "The published language models use 0.99."
            )
        super().__init__(learning_rate, **kwargs)
        self.momentum = momentum

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.momentums = self.add_optimizer_variables(variables, "momentum")

    def apply(self, grads, trainable_variables=None):
        """Applies gradients.

        Under TensorFlow the rows of an embedding's gradient are summed per word first, so that clipping and momentum
        see the sums.
        """
        if keras.config.backend() == "tensorflow":
            import tensorflow as tf

            grads = [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient in grads]
        super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
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

    def get_config(self):
        return {**super().get_config(), "momentum": self.momentum}


def _tensorflow_update(variable, buffer, gradient, learning_rate, momentum):
    """Updates a variable by TensorFlow's kernel, in two passes over memory; single operations need six."""
    import tensorflow as tf

    variable = variable.value if isinstance(variable, keras.Variable) else variable  # bare under a strategy
    tf.raw_ops.ResourceApplyMomentum(
        var=variable.handle,
        accum=buffer.value.handle,
        lr=learning_rate,
        grad=gradient,
        momentum=momentum,
        use_nesterov=True,
    )
