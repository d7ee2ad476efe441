"""Batches of different lengths for `fit`."""

import itertools
from collections.abc import Iterable
from typing import Any

import keras


def of_any_length(batches: Iterable, count: int | None = None) -> Any:
    """Returns batches whose lengths may differ, for `fit` and `evaluate`; under TensorFlow as a `tf.data.Dataset`.

    There, Keras infers the length of all batches from the first two. If these two have the same length, it would fail
    at the first batch of another length. `count` is the number of batches, None if it is unknown or infinite.
    """
    if keras.config.backend() != "tensorflow":
        return batches
    import tensorflow as tf

    iterator = iter(batches)
    first = next(iterator)
    make = (lambda: itertools.chain([first], iterator)) if iterator is batches else batches.__iter__
    spec = keras.tree.map_structure(lambda array: tf.TensorSpec([None] * array.ndim, array.dtype), first)
    dataset = tf.data.Dataset.from_generator(make, output_signature=spec)
    if count is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(tf.data.AUTOTUNE)
