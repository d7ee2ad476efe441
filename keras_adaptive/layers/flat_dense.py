import keras
from keras import ops

from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class FlatDense(keras.layers.Dense):
    """A `keras.layers.Dense` that treats all positions of all rows as one matrix.

    The outputs equal those of `keras.layers.Dense`. For inputs (batch, length, dim) the gradient of the kernel is a
    single matrix product, which takes less than half the time of the batched product of XLA and TensorFlow.
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        flat = ops.reshape(inputs, [-1, inputs.shape[-1]])
        if keras.config.backend() == "torch" and self.use_bias:
            flat = self._torch_call(flat)
        else:
            flat = super().call(flat, training=training)
        return ops.reshape(flat, (*ops.shape(inputs)[:-1], self.units))

    def _torch_call(self, flat):
        """Adds the bias within the product, which saves the second pass of Keras over the output."""
        import torch

        bias, kernel = ops.convert_to_tensor(self.bias), ops.convert_to_tensor(self.kernel)
        return self.activation(torch.addmm(bias, flat, kernel))
