"""Checks of the training data of language models.

Steps count the ids outside the vocabulary on the device, and the host reports them as an error.
"""

import functools
import inspect

import keras
from keras import ops


class OutsideIds(keras.callbacks.Callback):
    """Calls `model.check_ids()` at the end of every epoch, before its validation, and of every evaluation."""

    def on_epoch_begin(self, epoch, logs=None):
        self._in_epoch = True

    def on_test_begin(self, logs=None):
        if getattr(self, "_in_epoch", False):
            self.model.check_ids()  # of training: the validation resets the count
        self._in_epoch = False

    def on_test_end(self, logs=None):
        self.model.check_ids()

    def on_epoch_end(self, epoch, logs=None):
        self.model.check_ids()


def with_check(callbacks):
    """Returns the callbacks of `fit` or `evaluate` with an `OutsideIds`."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks  # of `fit`, which has one
    return [*keras.tree.flatten(callbacks or []), OutsideIds()]


def checked(method):
    """Wraps a method of a model, such as `train_on_batch`: rejects class weights, and calls `model.check_ids()`."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(model, *args, **kwargs):
        check_class_weight(signature.bind(model, *args, **kwargs).arguments)
        result = method(model, *args, **kwargs)
        model.check_ids()
        return result

    return call


def check_class_weight(arguments):
    """Raises a `ValueError` if a dict of arguments contains a `class_weight`: Keras would read the ids as one-hot."""
    if arguments.get("class_weight") is not None:
        raise ValueError(
            "`class_weight` is not available, because a language model has one target per token: pass `sample_weight`, "
            "a weight per target. Received: class_weight."
        )


def raise_if_outside(tracker, vocabulary_size, consequence):
    """Raises a `ValueError` if a metric has counted ids outside the vocabulary, and resets it; waits for the device."""
    outside = int(ops.convert_to_numpy(tracker.total))
    if outside:
        tracker.reset_state()  # later batches start from 0
        raise ValueError(
            f"The batches must hold ids from 0 to {vocabulary_size - 1}, except for targets of weight 0: encode the "
            "text with the vocabulary of the model, or give ignored targets the weight 0. "
            f"Received: {outside} ids outside this range. {consequence}"
        )
