import keras
from keras import ops

from keras_adaptive.backend.fused_step import fused_step
from keras_adaptive.backend.known_options import has_known_options
from keras_adaptive.backend.ordering import with_dependencies


class FusedAdam(keras.optimizers.Adam):
    """Implements `keras.optimizers.Adam`, under torch by one fused kernel instead of about ten operations.

    The steps equal the steps of Keras, which adds ε to the root of the second moment before it corrects the bias. XLA
    fuses the operations of Keras by itself. Under TensorFlow they are ordered, so that one array as large as the
    variable exists beside it, where Keras needs two. TensorFlow's kernel is not used: it rounds 1 − β₂ to five digits
    and saves little time. To test again with another Keras than 3.15.

    Attributes:
        l2: Factor of the L2 penalty, which is added to the gradients.
    """

    l2 = 0.0

    def update_step(self, gradient, variable, learning_rate):
        gradient = with_penalty(gradient, variable, self.l2)
        if keras.config.backend() == "tensorflow" and not self.amsgrad and has_known_options(self):
            self._ordered_step(gradient, variable, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def _ordered_step(self, gradient, variable, learning_rate):
        """Takes the step of Keras, whose parts TensorFlow would run at the same time, each with an array of its own."""
        index = self._get_variable_index(variable)
        momentum, velocity = self._momentums[index], self._velocities[index]
        step, rate = (ops.cast(number, variable.dtype) for number in (self.iterations + 1, learning_rate))
        beta_1, beta_2 = (ops.cast(beta, variable.dtype) for beta in (self.beta_1, self.beta_2))
        rate = rate * ops.sqrt(1 - ops.power(beta_2, step)) / (1 - ops.power(beta_1, step))
        self.assign_add(momentum, (gradient - momentum) * (1 - self.beta_1))
        gradient = with_dependencies(gradient, momentum)
        self.assign_add(velocity, (ops.square(gradient) - velocity) * (1 - self.beta_2))
        self.assign_sub(variable, momentum / (ops.sqrt(velocity) + self.epsilon) * rate)

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if keras.config.backend() == "torch" and not self.amsgrad and has_known_options(self):
            slots = self._momentums, self._velocities
            fused_step(self, grads, trainable_variables, learning_rate, slots, self._torch_kernel)
        else:
            super()._backend_update_step(grads, trainable_variables, learning_rate)

    def _torch_kernel(self, parameters, gradients, momentums, velocities, learning_rate):
        import torch
        from torch.optim.adam import adam

        iterations = int(self.iterations)
        steps = torch.full((len(parameters),), float(iterations), device=parameters[0].device)  # the kernel adds 1
        adam(
            parameters,
            gradients,
            momentums,
            velocities,
            [],
            list(steps.unbind()),
            fused=True,
            amsgrad=False,
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            eps=self.epsilon / (1 - self.beta_2 ** (iterations + 1)) ** 0.5,  # torch corrects the bias before adding ε
            weight_decay=self.l2,
            maximize=False,
        )


def with_penalty(gradient, variable, l2):
    """Adds the gradient of an L2 penalty, `l2` times the variable, to a gradient."""
    gradient = ops.cast(gradient, variable.dtype)
    return ops.add(gradient, ops.multiply(ops.stop_gradient(ops.convert_to_tensor(variable)), l2)) if l2 else gradient
