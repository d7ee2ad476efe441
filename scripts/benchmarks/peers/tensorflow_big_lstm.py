"""Projected LSTM with a sampled softmax, as a user writes it with Keras on TensorFlow, for comparison.

The program uses Keras' `Embedding`, its `RNN` over a cell with a projection, `tf.nn.sampled_softmax_loss`, and
TensorFlow's Adagrad, which updates only the rows in `tf.IndexedSlices`. `scripts.benchmarks.step` times it.
"""

import keras
import tensorflow as tf


class ProjectedCell(keras.layers.Layer):
    """A step of an LSTM of `units` cells, whose output is projected to `dim` before it recurs."""

    def __init__(self, units, dim):
        super().__init__()
        self.units = units
        self.state_size, self.output_size = [dim, units], dim

    def build(self, shape):
        both = shape[-1] + self.output_size
        self.kernel = self.add_weight(shape=(both, 4 * self.units))
        self.bias = self.add_weight(shape=(4 * self.units,), initializer="zeros")
        self.projection = self.add_weight(shape=(self.units, self.output_size))

    def call(self, x, states):
        h, c = states
        gates = keras.ops.concatenate([x, h], axis=-1) @ self.kernel + self.bias
        i, f, g, o = keras.ops.split(gates, 4, axis=-1)
        c = keras.ops.sigmoid(f + 1) * c + keras.ops.sigmoid(i) * keras.ops.tanh(g)
        h = (keras.ops.sigmoid(o) * keras.ops.tanh(c)) @ self.projection
        return h, [h, c]


class Trainer:
    """Updates, by Adagrad, of the model on streams, whose state it carries. `clip_norm` is for the LSTM only."""

    def __init__(self, vocabulary_size, num_layers, units, dim, *, rows, num_samples, rate, clip_norm):
        self.embedding = keras.layers.Embedding(vocabulary_size, dim)
        self.layers = [
            keras.layers.RNN(ProjectedCell(units, dim), return_sequences=True, return_state=True)
            for _ in range(num_layers)
        ]
        self.embedding.build()
        for layer in self.layers:
            layer.build((rows, None, dim))
        self.table = tf.Variable(tf.random.normal((vocabulary_size, dim), stddev=dim**-0.5))
        self.bias = tf.Variable(tf.zeros(vocabulary_size))
        self.states = [[tf.Variable(tf.zeros((rows, size))) for size in (dim, units)] for _ in range(num_layers)]
        self.num_samples, self.clip_norm = num_samples, clip_norm
        self.optimizer = tf.compat.v1.train.AdagradOptimizer(rate, initial_accumulator_value=1.0)
        self._update = tf.function(self._step)

    @property
    def recurrent(self):
        return [weight.value for layer in self.layers for weight in layer.trainable_weights]

    @property
    def words(self):
        return [*(weight.value for weight in self.embedding.trainable_weights), self.table, self.bias]

    def count_params(self):
        return sum(int(tf.size(weight)) for weight in (*self.recurrent, *self.words))

    def update(self, tokens, targets):
        """Takes a step on ids (rows, time) and returns the mean loss before it."""
        return float(self._update(tf.convert_to_tensor(tokens), tf.convert_to_tensor(targets)))

    def _step(self, tokens, targets):
        recurrent, words = self.recurrent, self.words
        with tf.GradientTape() as tape:
            x, new_states = self.embedding(tokens), []
            for layer, states in zip(self.layers, self.states):
                x, *state = layer(x, initial_state=[tf.convert_to_tensor(one) for one in states])
                new_states.append(state)
            hidden = tf.reshape(x, (-1, x.shape[-1]))
            ids = tf.reshape(tf.cast(targets, tf.int64), (-1, 1))
            sizes = self.num_samples, self.table.shape[0]
            loss = tf.reduce_mean(tf.nn.sampled_softmax_loss(self.table, self.bias, ids, hidden, *sizes))
        of_recurrent, of_words = tape.gradient(loss, [recurrent, words])
        of_recurrent, _ = tf.clip_by_global_norm(of_recurrent, self.clip_norm)
        self.optimizer.apply_gradients(zip([*of_recurrent, *of_words], [*recurrent, *words]))
        for old, new in zip(self.states, new_states):
            for variable, value in zip(old, new):
                variable.assign(value)
        return loss
