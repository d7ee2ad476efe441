"""The smallest body and the smallest mixing layer: what adding one takes."""

import keras
from keras import ops

from keras_adaptive.layers import Body, Mixer
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout


@keras.saving.register_keras_serializable(package="keras_adaptive_tests")
class ToyBody(Body):
    """A recurrent body without matrices between steps: h = tanh(h before + W · x).

    Args:
        dim: Dimension of the hidden states.
        dropout: Rate on the input.
    """

    def __init__(self, dim, *, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.dim = self.output_dim = dim
        self.dropout = dropout
        self.dense = keras.layers.Dense(dim, dtype=self.dtype_policy)
        self._drop = SeededDropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        self.dense.build(input_shape)
        self.built = True

    def initial_state(self, batch_size, length=None):
        return ops.zeros((batch_size, self.output_dim), self.compute_dtype)

    def step(self, x, state, training=False):
        def one(hidden, x):
            hidden = ops.tanh(hidden + x)
            return hidden, hidden

        x = self.dense(self._drop(x, training=training))
        state, hidden = ops.scan(one, state, ops.swapaxes(x, 0, 1))  # over (length, batch, output_dim)
        return ops.swapaxes(hidden, 0, 1), state

    def get_config(self):
        return {**super().get_config(), "dim": self.dim, "dropout": self.dropout}


@keras.saving.register_keras_serializable(package="keras_adaptive_tests")
class ToyMixer(Mixer):
    """The mean of the vectors up to each position: a mixer of a sum and the position."""

    def initial_state(self, batch_size, length, dim):
        return ops.zeros((batch_size, dim), self.compute_dtype)

    def step(self, x, state, position, training=False):
        sums = state[:, None] + ops.cumsum(x, axis=1)
        counts = ops.cast(position + 1 + ops.arange(ops.shape(x)[1]), x.dtype)
        return sums / counts[:, None], sums[:, -1]
