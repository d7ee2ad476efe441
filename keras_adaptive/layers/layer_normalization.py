import keras

from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.ops.normalization import layer_normalization
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class LayerNormalization(Quantizable, keras.layers.LayerNormalization):
    """A `keras.layers.LayerNormalization` over the last axis that takes less memory under JAX.

    See `ops.normalization` for the figures.
    """

    def call(self, inputs: Tensor) -> Tensor:
        outputs = layer_normalization(inputs, self.gamma, self.beta, self.epsilon)
        return keras.ops.cast(outputs, self.compute_dtype)
