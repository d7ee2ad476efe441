import functools
import inspect
import os
from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_adaptive.backend.gradients import value_and_gradients
from keras_adaptive.backend.optimizer_step import apply_gradients
from keras_adaptive.backend.replicas import replica_count
from keras_adaptive.backend.rows import summed_by_row
from keras_adaptive.backend.run_step import run_step
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.layers.outputs.tied_output import with_nested
from keras_adaptive.layers.outputs.unsorted_ids import warn_if_unsorted
from keras_adaptive.metrics.perplexity import Perplexity
from keras_adaptive.models.language_model import REQUIRES
from keras_adaptive.models.outside_ids import check_class_weight, checked, raise_if_outside, with_check
from keras_adaptive.models.prediction import refuse_onnx
from keras_adaptive.models.row_tables import row_tables
from keras_adaptive.ops.bands import count_outside
from keras_adaptive.ops.global_norm import clip_factor, global_norm, scaled
from keras_adaptive.ops.token_weights import token_weights
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class WordModel(keras.Model):
    """Functional model from any inputs to hidden states, with an output layer that predicts words.

    The model uses the training loop of Keras: `fit` and `evaluate` take `(inputs, targets)` or `(inputs, targets,
    sample_weight)`, with one weight per target or per row. Masked hidden states have the weight 0. The loss is the mean
    negative log-likelihood per target of a batch, in nats, plus the losses that layers add. No array (batch, length,
    vocabulary) exists. Logs contain `loss` (a mean over batches, as always in Keras), `perplexity` (over all targets
    with their weights, without the losses of layers) and optionally `accuracy`, the weighted share of the targets that
    are the most probable word. `predict` returns hidden states.

    Copy the model by `WordModel.from_config(model.get_config())`: `clone_model` does not copy the output layer.

    Args:
        inputs: Inputs of a functional `keras.Model`.
        outputs: Symbolic hidden states (…, hidden_dim).
        word_output: An `Output`, such as `AdaptiveSoftmax`, which the model builds.
        name: Name of the model.

    Raises:
        ValueError: If `word_output` is missing.

    Example:

    >>> ids = keras.Input((None,), dtype="int32")
    >>> embedding = AdaptiveEmbedding(10_000, 64, cutoffs=(1_000, 4_000))
    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(1_000, 4_000), tied_to=embedding)
    >>> hidden = keras.layers.LSTM(64, return_sequences=True)(embedding(ids))
    >>> model = WordModel(ids, hidden, word_output=softmax)
    >>> model.compile("adam", metrics=["accuracy"])
    >>> tokens = np.random.randint(0, 10_000, size=(32, 9))
    >>> history = model.fit(tokens[:, :-1], tokens[:, 1:], sample_weight=np.ones((32, 8)), verbose=0)
    >>> log_probs, best = model.word_output.top_k(model.predict(tokens[:1], verbose=0), k=5)  # (1, 9, 5) each
    """

    def __init__(self, *args: Any, word_output: Output | None = None, **kwargs: Any) -> None:
        if word_output is None:
            raise ValueError(
                "A `WordModel` needs a `word_output`. `keras.models.clone_model` cannot pass it: copy the model by "
                "`WordModel.from_config(model.get_config())`. Received: word_output=None."
            )
        super().__init__(*args, **kwargs)
        word_output.attach(self.outputs[0])
        self.word_output = word_output
        self.perplexity_tracker = Perplexity()
        self.accuracy_tracker = keras.metrics.Mean(name="accuracy")
        self.outside_tracker = keras.metrics.Sum(name="outside")  # targets outside the vocabulary, not logged
        self.reports_accuracy = False

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        hidden = [] if self.reports_accuracy else [id(self.accuracy_tracker)]
        return [metric for metric in super().metrics if id(metric) not in hidden]

    def get_metrics_result(self) -> dict[str, Any]:
        results = super().get_metrics_result()
        return {name: value for name, value in results.items() if name != self.outside_tracker.name}

    def check_ids(self) -> None:
        """Checks the targets of all batches since the start of the epoch or evaluation, and waits for the device.

        Raises:
            ValueError: If a target was outside the vocabulary.
        """
        raise_if_outside(self.outside_tracker, self.word_output.vocabulary_size, "They were ignored.")

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        metrics: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Configures training as `keras.Model.compile` does; the model has its own loss.

        Args:
            optimizer: Any Keras optimizer.
            metrics: `["accuracy"]` or `None`. In training, accuracy costs a second pass over the output.
            **kwargs: Other arguments of `keras.Model.compile`: `jit_compile`, `run_eagerly`, `steps_per_execution`.

        Raises:
            ValueError: If a loss or other metrics are given.
        """
        metrics = [metrics] if isinstance(metrics, str) else list(metrics or [])
        if set(metrics) - {"accuracy"}:
            raise ValueError(
                "`metrics` of a `WordModel` can contain only 'accuracy', since other metrics would need the "
                f"probabilities of all words; it always reports its perplexity. Received: metrics={metrics}."
            )
        for name in ("loss", "weighted_metrics"):
            if kwargs.get(name) is not None:
                raise ValueError(f"A `WordModel` has its own loss: leave out `{name}`. Received: {kwargs[name]}.")
        self.reports_accuracy = bool(metrics)
        super().compile(optimizer=optimizer, **kwargs)

    def get_compile_config(self) -> dict[str, Any] | None:
        config = super().get_compile_config()
        return config and {**config, "metrics": ["accuracy"] if self.reports_accuracy else None}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Trains the model as `keras.Model.fit` does.

        The first call warns if the first targets are not in descending order of their counts, but should be.

        Raises:
            ValueError: At the end of an epoch in which a target was outside the vocabulary, or on class weights.
        """
        arguments = _with_check(super().fit, args, kwargs)
        check_class_weight(arguments)
        data = (arguments.get(name) for name in ("x", "y", "sample_weight"))
        return super().fit(**{**arguments, "x": warn_if_unsorted(self, self.word_output, *data)})

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates the model as `keras.Model.evaluate` does: loss, perplexity and, if compiled, accuracy.

        Raises:
            ValueError: If a target was outside the vocabulary.
        """
        return super().evaluate(**_with_check(super().evaluate, args, kwargs))

    train_on_batch = checked(keras.Model.train_on_batch)
    test_on_batch = checked(keras.Model.test_on_batch)

    def train_step(self, *arguments: Any) -> dict[str, Any]:
        """Runs the training step of Keras or, if the optimizer can update single rows of tables, a step by rows.

        Several devices always run the step of Keras.
        """
        if not self._row_tables():
            return super().train_step(*arguments)
        return run_step(self, self._train_by_rows, arguments, self.optimizer.variables)

    def _row_tables(self):
        if replica_count() > 1 or keras.distribution.distribution() is not None:
            return []
        layers = [nested for layer in self.layers for nested in with_nested(layer)]
        inputs = [layer for layer in layers if isinstance(layer, Input)]
        return row_tables([*inputs, self.word_output], self.trainable_variables, self.optimizer)

    def _train_by_rows(self, data):
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        variables, states = self.trainable_variables, [*self.non_trainable_variables, *self.metrics_variables]
        objective = lambda x, *rest: (self.compute_loss(x, rest[0], self(x, training=True), *rest[1:]), ())  # noqa: E731
        arguments = (x, y, weights)
        (loss, _), gradients = value_and_gradients(objective, arguments, variables, states, self._row_tables())
        gradients = list(map(summed_by_row, gradients))
        if bound := self.optimizer.global_clipnorm:
            gradients = scaled(gradients, clip_factor(global_norm(gradients), bound))
        apply_gradients(self.optimizer, gradients, variables, ops.convert_to_tensor(True))
        rows = ops.shape(keras.tree.flatten(x)[0])[0]
        next(metric for metric in self.metrics if metric.name == "loss").update_state(loss, sample_weight=rows)
        return self.get_metrics_result()

    def compute_loss(
        self,
        x: Any = None,
        y: Tensor | None = None,
        y_pred: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool | None = True,
    ) -> Tensor:
        """Returns the mean negative log-likelihood per target plus the losses of layers, and updates the metrics."""
        y = ops.convert_to_tensor(y)  # on the device; torch reads batches on the CPU
        weights = token_weights(y, sample_weight, _mask_of()(y_pred))
        count = ops.sum(weights)
        self.outside_tracker.update_state(count_outside(y, self.word_output.vocabulary_size, weights))
        shares = weights / ops.where(count == 0, 1.0, count)
        if self.reports_accuracy:
            log_probs, ranks = self._score(y_pred, y)
            self.accuracy_tracker.update_state(ops.sum(shares * ops.cast(ranks == 1, "float32")), sample_weight=count)
        if training:
            loss = self.word_output.training_loss(y_pred, y, shares)
        else:
            loss = ops.sum(shares * (-log_probs if self.reports_accuracy else self.word_output.nll(y_pred, y)))
        self.perplexity_tracker.update_state(ops.stop_gradient(loss), sample_weight=count)
        return sum((ops.sum(added) for added in self.losses), loss)

    def _score(self, hidden, targets):
        """Scores the targets without gradients, since JAX cannot differentiate the loops over chunks."""
        constants = [(variable, ops.stop_gradient(variable.value)) for variable in self.word_output.variables]
        with keras.StatelessScope(state_mapping=constants):
            return self.word_output.score(ops.stop_gradient(hidden), targets)

    def export(
        self, filepath: str | os.PathLike[str], format: str = "tf_saved_model", *args: Any, **kwargs: Any
    ) -> Any:
        """Exports the function of `predict`, as `keras.Model.export` does.

        Raises:
            ValueError: If the format is `"onnx"`.
        """
        refuse_onnx(format)
        return super().export(filepath, format, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        word_output = keras.saving.serialize_keras_object(self.word_output)
        return {**REQUIRES, **super().get_config(), "word_output": word_output}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Self:
        config = {key: value for key, value in config.items() if key not in REQUIRES}
        word_output = keras.saving.deserialize_keras_object(config["word_output"], custom_objects=custom_objects)
        return super().from_config({**config, "word_output": word_output}, custom_objects)


def _with_check(method, args, kwargs):
    """Returns the arguments of a method of Keras by name, with an `OutsideIds` among the callbacks."""
    arguments = inspect.signature(method).bind(*args, **kwargs).arguments
    keywords = arguments.pop("kwargs", {})
    return {**arguments, **keywords, "callbacks": with_check(arguments.get("callbacks"))}


class _MaskOf(keras.layers.Layer):
    """Layer that returns the Keras mask of a tensor, or `None`."""

    def __init__(self):
        super().__init__(name="mask_of", autocast=False)
        self.supports_masking = True

    def call(self, tensor, mask=None):
        return mask


_mask_of = functools.cache(_MaskOf)
