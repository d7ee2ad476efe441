import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_adaptive")
class FlatDense(keras.layers.Dense):
    """A `keras.layers.Dense` that treats all positions of all rows as one matrix.

    It computes the values of `keras.layers.Dense`. For an input (batch, length, dim) the gradient of the kernel is one
    matrix product; XLA and TensorFlow otherwise compute one that takes more than twice as long.
    """

    def call(self, inputs, training=None):
        flat = ops.reshape(inputs, [-1, inputs.shape[-1]])
        if keras.config.backend() == "torch" and self.use_bias:
            flat = self._torch_call(flat)
        else:
            flat = super().call(flat, training=training)
        return ops.reshape(flat, (*ops.shape(inputs)[:-1], self.units))

    def _torch_call(self, flat):
        """Adds the bias while the product is written; Keras passes over the product once more."""
        import torch

        bias, kernel = ops.convert_to_tensor(self.bias), ops.convert_to_tensor(self.kernel)
        return self.activation(torch.addmm(bias, flat, kernel))
