"""Checks of the data of language models, before and after the steps of `fit`, `evaluate` and `predict`.

Steps count the ids outside the vocabulary on the device, and the host reports them as an error.
"""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.run_step import keeping_state
from keras_adaptive.backend.wide_ids import as_int32, saturate_batches, saturated


class CheckedData(keras.Model):
    """Base class of models that refuse empty data in one line, and stay whole if a step of a loop fails.

    An id that int32 cannot hold stays outside the vocabulary, where Keras or JAX would make a word of it.
    """

    _steps_done = 0  # by the train or test function since the start of a loop

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Trains the model as `keras.Model.fit` does.

        Raises:
            ValueError: If there are no rows, tokens or targets, or on class weights. At the end of an epoch in which an
                id was outside the vocabulary.
        """
        check_data(inspect.signature(super().fit).bind(x, y, *args, **kwargs).arguments)
        return self._some_steps("fit", super().fit, x, y, *args, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates the model as `keras.Model.evaluate` does.

        Raises:
            ValueError: If there are no rows, tokens or targets, or an id is outside the vocabulary.
        """
        if not kwargs.get("_use_cached_eval_dataset"):  # `fit` passes the data set that it has made
            check_data(inspect.signature(super().evaluate).bind(x, y, *args, **kwargs).arguments)
        return self._some_steps("evaluate", super().evaluate, x, y, *args, **kwargs)

    def save(self, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Saves the model as `keras.Model.save` does.

        Raises:
            ValueError: If the name ends in `.h5` or `.hdf5`, a format that cannot be loaded again.
        """
        if str(filepath).endswith((".h5", ".hdf5")):
            raise ValueError(f"A {type(self).__name__} is saved as a `.keras` file. Received: filepath={filepath}.")
        super().save(filepath, *args, **kwargs)

    def _some_steps(self, name, method, *args, **kwargs):
        """Calls `method`, which must run a step."""
        before, self._steps_done = self._steps_done, 0
        result = method(*args, **kwargs)
        self._check_some(name)
        self._steps_done += before  # of `fit`, which evaluates
        return result

    def _check_some(self, name):
        if not self._steps_done:
            raise ValueError(f"`{name}` needs at least one batch. Received: data without batches.")

    def _symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None:
            saturate_batches(iterator)
        super()._symbolic_build(iterator=iterator, data_batch=data_batch)

    def _convert_inputs_to_tensors(self, flat_inputs):
        """Converts the inputs that are declared as int32 before Keras casts them."""
        converts = lambda x, declared: declared.dtype == "int32" and not declared.sparse and hasattr(x, "dtype")  # noqa: E731
        return super()._convert_inputs_to_tensors(
            [as_int32(x) if converts(x, declared) else x for x, declared in zip(flat_inputs, self.inputs)]
        )

    def make_train_function(self, force: bool = False) -> Any:
        before = self.train_function
        super().make_train_function(force)
        if self.train_function is not before:
            groups = lambda: (  # noqa: E731
                self.trainable_variables,
                self.non_trainable_variables,
                self.optimizer.variables,
                self.metrics_variables,
            )
            self.train_function = self._counted("fit", keeping_state(self.train_function, groups))
        return self.train_function

    def make_test_function(self, force: bool = False) -> Any:
        before = self.test_function
        super().make_test_function(force)
        if self.test_function is not before:
            groups = lambda: (self.trainable_variables, self.non_trainable_variables, self.metrics_variables)  # noqa: E731
            self.test_function = self._counted("evaluate", keeping_state(self.test_function, groups))
        return self.test_function

    def make_predict_function(self, force: bool = False) -> Any:
        before = self.predict_function
        super().make_predict_function(force)
        if self.predict_function is not before:
            groups = lambda: (self.trainable_variables, self.non_trainable_variables)  # noqa: E731
            self.predict_function = keeping_state(self.predict_function, groups)
        return self.predict_function

    def _counted(self, name, function):
        def counted(*arguments):
            try:
                result = function(*arguments)
            except StopIteration:
                self._check_some(name)
                raise
            self._steps_done += 1
            return result

        return counted


def checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method of a model, such as `train_on_batch`: checks its arguments, and calls `model.check_ids()`."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(model, *args, **kwargs):
        check_data(signature.bind(model, *args, **kwargs).arguments)
        result = method(model, *saturated(args), **saturated(kwargs))
        model.check_ids()
        return result

    return call


def check_data(arguments: dict[str, Any], rows: bool = True) -> None:
    """Raises a `ValueError` if the arguments of a method of Keras contain empty arrays, no targets or class weights.

    Args:
        arguments: Dict with the keys "x", "y" and "class_weight", all of them optional.
        rows: Whether arrays must have rows.
    """
    x, y = (arguments.get(name) for name in ("x", "y"))
    check_class_weight(arguments)
    check_not_empty((x, y), rows)
    if y is None and any(hasattr(leaf, "dtype") for leaf in keras.tree.flatten(x)):
        raise ValueError(
            "A language model is trained and evaluated on pairs of inputs and targets: pass the ids of the next words "
            "as `y`, such as x=tokens[:, :-1], y=tokens[:, 1:]. Received: y=None."
        )


def check_not_empty(arrays: Any, rows: bool = True) -> None:
    """Raises a `ValueError` if an array among the data has no tokens or, where there must be `rows`, no rows."""
    for leaf in keras.tree.flatten(arrays):
        shape = tuple(getattr(leaf, "shape", ())) if hasattr(leaf, "dtype") else ()
        if 0 in shape[0 if rows else 1 :]:
            raise ValueError(f"Arrays must have at least one row and one token. Received: shape={shape}.")


def check_class_weight(arguments: dict[str, Any]) -> None:
    """Raises a `ValueError` if a dict of arguments contains a `class_weight`: Keras would read the ids as one-hot."""
    if arguments.get("class_weight") is not None:
        raise ValueError(
            "`class_weight` is not available, because a language model has one target per token: pass `sample_weight`, "
            "a weight per target. Received: class_weight."
        )


def raise_if_outside(tracker: keras.metrics.Metric, vocabulary_size: int) -> None:
    """Raises a `ValueError` if a metric has counted ids outside the vocabulary, and resets it; waits for the device."""
    outside = int(ops.convert_to_numpy(tracker.total))
    if outside:
        tracker.reset_state()  # later batches start from 0
        raise ValueError(
            f"The batches must hold ids from 0 to {vocabulary_size - 1}, except for targets of weight 0: encode the "
            "text with the vocabulary of the model, or give ignored targets the weight 0. "
            f"Received: {outside} ids outside this range. Updates with such ids changed no weight."
        )
