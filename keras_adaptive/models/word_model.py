import functools
import inspect
import os
from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_adaptive.backend.replicas import average_over_replicas, replica_count, sum_over_replicas
from keras_adaptive.backend.wide_ids import saturated
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.layers.outputs.tied_output import with_nested
from keras_adaptive.layers.outputs.unsorted_ids import warn_if_unsorted
from keras_adaptive.metrics.rank_metric import RankMetric
from keras_adaptive.models.checked_data import check_not_empty
from keras_adaptive.models.language_model import REQUIRES
from keras_adaptive.models.prediction import refuse_onnx
from keras_adaptive.models.replicated_metrics import ReplicatedMean
from keras_adaptive.models.training_step import TrainingStep
from keras_adaptive.ops.token_weights import token_weights


@keras.saving.register_keras_serializable(package="keras_adaptive")
class WordModel(TrainingStep):
    """Functional model from any inputs to hidden states, with an output layer that predicts words.

    The model is trained by the step of `LanguageModel`: `fit` and `evaluate` take `(inputs, targets)` or `(inputs,
    targets, sample_weight)`, with one weight per target or per row. Masked hidden states have the weight 0. No array
    (batch, length, vocabulary) exists. A batch is one update, in `micro_batches` parts and on any number of devices.

    Logs contain `loss`, the mean negative log-likelihood per target in nats plus the losses that layers add,
    `perplexity`, without the losses of layers, and optionally `accuracy`, the weighted share of the targets that are
    the most probable word. Evaluations can report metrics of ranks, such as `HitRate(10)`, too. All are over all
    targets since the start of the epoch, never means of batches. Training also logs `gradient_norm` and `skipped`, as a
    `LanguageModel` does. `predict` returns hidden states.

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
        self._make_trackers()
        self.accuracy_tracker = ReplicatedMean(name="accuracy")

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        metrics: str | RankMetric | Sequence[str | RankMetric] | None = None,
        *,
        micro_batches: int = 1,
        exclude_input: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Configures training as `keras.Model.compile` does; the model has its own loss.

        Args:
            optimizer: Any Keras optimizer. Its `global_clipnorm` bounds the norm of the gradient of the whole update.
                `Adagrad`, `SGD` without momentum and `LazyAdam` update only the rows of word tables that a batch reads,
                if the model reads the tables by rows. With all other optimizers every update may change every row.
            metrics: List of "accuracy" and of metrics of ranks, such as `HitRate(10)`. In training, an
                `AdaptiveSoftmax` computes the accuracy in the pass of the loss, with dropout; other outputs need a
                second pass. Ranks always need one, so only `evaluate`, and `fit` with validation data, compute them, in
                the pass of the loss. They are ranks among all words; no metric is of a sample.
            micro_batches: Number of equal parts in which a batch of `fit` is computed to save memory (gradient
                accumulation). It must divide the batch. Masked hidden states need 1 part.
            exclude_input: Name of the input with the ids of the words (batch, length) that a row has seen, such as the
                history of a recommender. Ranks are then among the words that are not in the row, or, with targets
                (batch, length), not at the position of the target or before. The target itself always counts. Ids
                outside the vocabulary exclude nothing. Loss and perplexity are those of all words. Optional.
            **kwargs: Other arguments of `keras.Model.compile`: `jit_compile`, `run_eagerly`, `steps_per_execution`.

        Raises:
            ValueError: If a loss or other metrics are given, two metrics have one name, `exclude_input` is no input, or
                is given without ranks or with "accuracy", or the optimizer accumulates gradients itself.
        """
        metrics = [metrics] if isinstance(metrics, (str, RankMetric)) else list(metrics or [])
        ranks: list[Any] = [metric for metric in metrics if metric != "accuracy"]
        accuracy = len(ranks) < len(metrics)
        if accuracy and exclude_input is not None:
            raise ValueError(
                "The accuracy of training is among all words: pass `HitRate(1)` for that among the words that "
                f"`exclude_input` leaves. Received: metrics={metrics}, exclude_input={exclude_input!r}."
            )
        super().compile(optimizer, ranks, micro_batches=micro_batches, exclude_input=exclude_input, **kwargs)
        self.reports_accuracy = accuracy

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Trains the model as `keras.Model.fit` does.

        The first call warns if the first targets are not in descending order of their counts, but should be.

        Raises:
            ValueError: If there are no rows or targets, or on class weights. At the end of an epoch in which a target
                was outside the vocabulary.
        """
        arguments = inspect.signature(keras.Model.fit).bind(self, x, y, *args, **kwargs).arguments
        x = warn_if_unsorted(self, self.word_output, x, y, arguments.get("sample_weight"))
        return super().fit(x, y, *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predicts as `keras.Model.predict` does.

        Raises:
            ValueError: If there are no rows.
        """
        check_not_empty(x)
        return super().predict(saturated(x), *args, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """Predicts a single batch, which must have rows."""
        check_not_empty(x)
        return super().predict_on_batch(x)

    def _train(self, data):
        logs = super()._train(data)
        average_over_replicas(self.non_trainable_variables)
        return logs

    def _row_layers(self):
        if replica_count() > 1:  # replicas with different numbers of rows cannot exchange them
            return []
        layers = [nested for layer in self.layers for nested in with_nested(layer)]
        return [*(layer for layer in layers if isinstance(layer, Input)), self.word_output]

    def _unmasked(self, hidden, targets, weights, counts):
        mask = _mask_of()(hidden)
        if mask is None:
            return weights, counts
        if self.micro_batches > 1:
            raise ValueError(
                "Masks are known only after the forward pass, but every micro-batch needs the number of targets of the "
                "whole batch: pass micro_batches=1, or no masks and `sample_weight` in their place. "
                f"Received: micro_batches={self.micro_batches}."
            )
        mask = token_weights(targets, None, mask)
        return weights * mask, self._counts(targets, weights * mask, mask)

    def _evaluated_losses(self):
        losses = [ops.sum(ops.cast(loss, "float32")) for loss in self.losses]
        return sum_over_replicas(sum(losses)) / replica_count() if losses else 0.0

    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Prints a summary as `keras.Model.summary` does, with the output layer."""
        whole = keras.Model(self.inputs, self.word_output(self.outputs[0], return_hidden=True), name=self.name)
        if self.compiled:
            whole.compile(self.optimizer)
        whole.summary(*args, **kwargs)

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


class _MaskOf(keras.layers.Layer):
    """Layer that returns the Keras mask of a tensor, or `None`."""

    def __init__(self):
        super().__init__(name="mask_of", autocast=False)
        self.supports_masking = True

    def call(self, tensor, mask=None):
        return mask


_mask_of = functools.cache(_MaskOf)
