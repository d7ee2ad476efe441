"""Sampled softmax, as a TensorFlow user writes it without this package, for comparison.

The program uses `tf.nn.sampled_softmax_loss` on a table and biases, whose gradients are `tf.IndexedSlices`, and
TensorFlow's Adagrad, which updates only their rows. `scripts.benchmarks.loss` times it.
"""

import tensorflow as tf


class Trainer:
    """Updates, by Adagrad, of a table, of its biases and of a vector that is added to all hidden states."""

    def __init__(self, table, num_samples, rate):
        self.table = tf.Variable(table)
        self.bias = tf.Variable(tf.zeros(len(table)))
        self.shift = tf.Variable(tf.zeros(table.shape[1]))
        self.num_samples = num_samples
        self.optimizer = tf.compat.v1.train.AdagradOptimizer(rate, initial_accumulator_value=1.0)
        self._update = tf.function(self._step)

    def update(self, hidden, targets):
        """Takes a step on hidden states (rows, dim) and ids (rows,), and returns the mean loss before it."""
        return float(self._update(tf.convert_to_tensor(hidden), tf.convert_to_tensor(targets)))

    def _step(self, hidden, targets):
        variables = [self.table, self.bias, self.shift]
        with tf.GradientTape() as tape:
            loss = self.loss(hidden, targets)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    def loss(self, hidden, targets, sampled_values=None):
        """Returns the mean loss; `sampled_values` are given noise words and expected counts, as TensorFlow has them."""
        losses = tf.nn.sampled_softmax_loss(
            self.table,
            self.bias,
            tf.cast(targets, tf.int64)[:, None],
            hidden + self.shift,
            self.num_samples,
            self.table.shape[0],
            sampled_values=sampled_values,
        )
        return tf.reduce_mean(losses)
