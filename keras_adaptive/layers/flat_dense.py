import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_adaptive")
class FlatDense(keras.layers.Dense):
    """A `keras.layers.Dense` that works on all positions of all rows as one matrix.

    The values are those of `keras.layers.Dense`. The gradient of a kernel under a (batch, length, dim) input is then
    one matrix product, where XLA and TensorFlow otherwise make one that takes more than twice as long.
    """

    def call(self, inputs, training=None):
        flat = super().call(ops.reshape(inputs, [-1, inputs.shape[-1]]), training=training)
        return ops.reshape(flat, (*ops.shape(inputs)[:-1], self.units))
