import keras
from keras import ops

from keras_adaptive.backend.fused_step import fused_step


class FusedAdam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` by one kernel under TensorFlow and torch, in place of some ten operations.

    The steps are the steps of Keras, whose ε is added to the root of the second moment before its bias is corrected.
    XLA fuses the operations of Keras by itself.

    Attributes:
        l2: Factor of every weight in its gradient.
    """

    l2 = 0.0

    def update_step(self, gradient, variable, learning_rate):
        gradient = with_penalty(gradient, variable, self.l2)
        if keras.config.backend() == "tensorflow" and not self.amsgrad:
            self._tensorflow_update(gradient, variable, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def _tensorflow_update(self, gradient, variable, learning_rate):
        import tensorflow as tf

        index, dtype = self._get_variable_index(variable), gradient.dtype
        step = ops.cast(self.iterations + 1, dtype)
        bare = variable.value if isinstance(variable, keras.Variable) else variable  # bare under a strategy
        tf.raw_ops.ResourceApplyAdam(
            var=bare.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=ops.power(ops.cast(self.beta_1, dtype), step),
            beta2_power=ops.power(ops.cast(self.beta_2, dtype), step),
            lr=ops.cast(learning_rate, dtype),
            beta1=ops.cast(self.beta_1, dtype),
            beta2=ops.cast(self.beta_2, dtype),
            epsilon=ops.cast(self.epsilon, dtype),
            grad=gradient,
        )

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if keras.config.backend() == "torch" and not self.amsgrad:
            slots = self._momentums, self._velocities
            fused_step(self, grads, trainable_variables, learning_rate, slots, self._torch_kernel)
        else:
            super()._backend_update_step(grads, trainable_variables, learning_rate)

    def _torch_kernel(self, parameters, gradients, momentums, velocities, learning_rate):
        import torch
        from torch.optim.adam import adam

        done = int(self.iterations)
        steps = torch.full((len(parameters),), float(done), device=parameters[0].device)  # the kernel adds 1
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
            eps=self.epsilon / (1 - self.beta_2 ** (done + 1)) ** 0.5,  # torch corrects the bias before it adds ε
            weight_decay=self.l2,
            maximize=False,
        )


def with_penalty(gradient, variable, l2):
    """Returns the gradient of the loss plus half of `l2` times the squared norm of the variable."""
    gradient = ops.cast(gradient, variable.dtype)
    return ops.add(gradient, ops.multiply(ops.stop_gradient(ops.convert_to_tensor(variable)), l2)) if l2 else gradient
