import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_adaptive")
class FlatDense(keras.layers.Dense):
    """A `keras.layers.Dense` that works on all positions of all rows as one matrix.

    The values are those of `keras.layers.Dense`. The gradient of a kernel under a (batch, length, dim) input is then
    one matrix product, where XLA and TensorFlow otherwise make one that takes more than twice as long.
    """

    def call(self, inputs, training=None):
        flat = ops.reshape(inputs, [-1, inputs.shape[-1]])
        if keras.config.backend() == "torch" and self.use_bias:
            flat = self._torch_call(flat)
        else:
            flat = super().call(flat, training=training)
        return ops.reshape(flat, (*ops.shape(inputs)[:-1], self.units))

    def _torch_call(self, flat):
        """The bias is added while the product is written, where Keras goes over it once more."""
        import torch

        bias, kernel = ops.convert_to_tensor(self.bias), ops.convert_to_tensor(self.kernel)
        return self.activation(torch.addmm(bias, flat, kernel))
