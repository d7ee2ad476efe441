import keras
from keras import ops

from keras_adaptive.backend.fused_step import fused_step
from keras_adaptive.backend.known_options import has_known_options


class FusedAdam(keras.optimizers.Adam):
    """Implements `keras.optimizers.Adam`, under torch by one fused kernel instead of about ten operations.

    The steps equal the steps of Keras, which adds ε to the root of the second moment before it corrects the bias. XLA
    fuses the operations of Keras by itself. The kernel of TensorFlow is not used: it rounds 1 − β₂ to five digits and
    saves little time. To test again with another Keras than 3.15.

    Attributes:
        l2: Factor of the L2 penalty, which is added to the gradients.
    """

    l2 = 0.0

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(with_penalty(gradient, variable, self.l2), variable, learning_rate)

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
