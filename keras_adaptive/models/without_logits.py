import functools
import inspect
from typing import Any

import keras
from keras import ops

from keras_adaptive.layers.outputs.linear_cross_entropy import HEADS, SOFTMAX, LinearCrossEntropy
from keras_adaptive.losses.row_loss import RowLoss
from keras_adaptive.models.delegated_training import DelegatedTraining
from keras_adaptive.models.replicated_metrics import ReplicatedMean, ReplicatedPerplexity
from keras_adaptive.models.word_model import WordModel

# In Keras the mean over a batch divides by the number of targets, whatever their weights.
REDUCTIONS = {
    "mean": "sum_over_batch_size",
    "sum_over_batch_size": "sum_over_batch_size",
    "mean_with_sample_weight": "mean_with_sample_weight",
}


def without_logits(model: keras.Model, *, loss: RowLoss | None = None) -> keras.Model:
    """Makes a model with a plain softmax train and evaluate without its logits; returns the same model.

    The model is a `keras_hub.models.CausalLM`, or any functional model, whose only output is a `Dense`, with or without
    a softmax, or a `ReversibleEmbedding` of its last hidden states. Then `compile`, `fit`, `evaluate`,
    `train_on_batch`, callbacks, `predict`, `generate` and all ways of saving are used as before, with the same weights.
    Training and evaluation compute the loss of `LinearCrossEntropy`, exactly and in chunks: no array (tokens,
    vocabulary) exists. Logs have the loss, the accuracy under the name that Keras gives it, `perplexity`,
    `gradient_norm` and `skipped`.

    Files hold the original model. A loaded model computes logits until it is passed to this function again.

    Args:
        model: The model, compiled or not. It keeps its optimizer; `compile` may follow.
        loss: What training minimizes, such as `losses.CrossEntropy(label_smoothing=0.1)`. Optional.

    Returns:
        `model`.

    Raises:
        ValueError: If the model does not end in such a layer, or was compiled with another loss than the cross-entropy,
            or with metrics other than accuracy and perplexity.

    Example:

    >>> ids = keras.Input((None,), dtype="int32")
    >>> hidden = keras.layers.LSTM(16, return_sequences=True)(keras.layers.Embedding(10_000, 16)(ids))
    >>> model = without_logits(keras.Model(ids, keras.layers.Dense(10_000)(hidden)))
    >>> model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    >>> tokens = np.random.randint(0, 10_000, size=(4, 9))
    >>> logs = model.fit(tokens[:, :-1], tokens[:, 1:], verbose=0).history
    """
    if isinstance(model, WithoutLogits):
        raise ValueError("The model already trains without logits. Received: a model that was passed before.")
    head, hidden = _head_of(model)
    inputs = model.inputs if isinstance(model, keras.Sequential) else model.input
    trainer = _Trainer(inputs, hidden, word_output=LinearCrossEntropy(tied_to=head, loss=loss), name=model.name)
    for name in ("trainable_variables", "non_trainable_variables"):
        if list(map(id, getattr(model, name))) != list(map(id, getattr(trainer, name))):
            raise ValueError(f"All variables of the model must belong to its output. Received: other {name}.")
    plain: Any = type(model)
    model.__class__ = _class_without_logits(plain)
    model.__dict__["trainer"] = trainer  # not as an attribute, since Keras would track it as a layer
    if model.compiled:
        config = keras.saving.deserialize_keras_object(model.get_compile_config())
        sampler = {"sampler": model.sampler} if hasattr(model, "sampler") else {}
        model.compile(**{**config, **sampler, "optimizer": model.optimizer})
    return model


@functools.cache
def _class_without_logits(plain):
    """Returns a subclass under the name of the class itself, which files then hold. Copies of a model are plain."""
    names = {name: getattr(plain, name) for name in ("__module__", "__qualname__", "__doc__")}
    names |= {"plain": plain, "__new__": lambda cls, *args, **kwargs: plain(*args, **kwargs)}
    made = type(plain.__name__, (WithoutLogits, plain), names)
    package, _, name = keras.saving.get_registered_name(plain).rpartition(">")
    for each in (made, plain) if package else ():  # the name stands for the last one
        keras.saving.register_keras_serializable(package, name)(each)
    return made


class WithoutLogits(DelegatedTraining):
    """Mixin of the models that `without_logits` returns.

    Attributes:
        plain: The class of the model before.
    """

    plain: Any
    trainer: "_Trainer"
    run_eagerly: bool  # these are of Keras
    jit_compile: bool | str
    steps_per_execution: int

    def compile(self, *args: Any, micro_batches: int = 1, **kwargs: Any) -> None:
        """Configures training and generation as the model's own `compile` does.

        Args:
            *args, **kwargs: As before. The loss is a sparse cross-entropy; metrics are accuracy and perplexity.
            micro_batches: Number of equal parts in which a batch is computed, to save memory.

        Raises:
            ValueError: If there is another loss or metric.
        """
        bound = inspect.signature(super().compile).bind(*args, **kwargs)
        bound.apply_defaults()
        given = {**bound.arguments, **bound.arguments.get("kwargs", {})}
        self.trainer.compile_as(given.get("loss"), [given.get("metrics"), given.get("weighted_metrics")])
        super().compile(*args, **kwargs)
        how: dict[str, Any] = {"run_eagerly": self.run_eagerly, "jit_compile": self.jit_compile}
        self.trainer.compile(
            self.optimizer,
            ["accuracy"] if self.trainer.reports_accuracy else None,
            micro_batches=micro_batches,
            steps_per_execution=self.steps_per_execution,
            **how,
        )
        self.optimizer = self.trainer.optimizer

    def __reduce__(self):
        load, arguments = super().__reduce__()
        return getattr(self.plain, load.__name__), arguments


class _Trainer(WordModel):
    """The training of a model by its hidden states, with the reduction and the names of its loss and metrics."""

    ignore_class: int | None = None

    def compile_as(self, loss, metrics):
        """Sets the reduction, the ignored class and the metrics, as Keras would for this loss and these metrics."""
        self.reduction, self.ignore_class = _reduction_of(loss, self.word_output.tied_to)
        names = {"accuracy": None, "perplexity": "perplexity"}
        names |= dict(_metric(metric) for metric in keras.tree.flatten(metrics) if metric is not None)
        self.reports_accuracy = names["accuracy"] is not None
        self.accuracy_tracker = ReplicatedMean(name=names["accuracy"] or "accuracy")
        self.perplexity_tracker = ReplicatedPerplexity(name=names["perplexity"])

    def _unpack(self, data):
        inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(data)
        inputs, begins, targets, weights = super()._unpack((inputs, self._ids(targets), weights))
        return inputs, begins, targets, weights if self.ignore_class is None else weights * self._kept(targets)

    def _kept(self, targets):
        """Returns 0 for targets of the ignored class, and 1 for others."""
        return ops.cast(targets != self.ignore_class, "float32")

    def _ids(self, targets):
        """Returns targets without a last axis of length 1, which Keras accepts too."""
        if len(targets.shape) != len(self.outputs[0].shape):
            return targets
        if targets.shape[-1] != 1:
            raise ValueError(
                "Targets must be ids, one for every hidden state: take the argmax of one-hot targets. "
                f"Received: shape={tuple(targets.shape)}."
            )
        return ops.squeeze(targets, axis=-1)

    def _counts(self, targets, weights, mask=None):
        if self.ignore_class is not None:
            mask = self._kept(targets) if mask is None else self._kept(targets) * mask
        return super()._counts(targets, weights, mask)


def _reduction_of(loss, head):
    """Returns the reduction and the ignored class of a loss that is the cross-entropy of a head, or refuses it."""
    from_logits = getattr(head, "activation", None) is not SOFTMAX
    if loss in (None, "auto") or loss == "sparse_categorical_crossentropy" and not from_logits:
        return "sum_over_batch_size", None
    config = loss.get_config() if isinstance(loss, keras.losses.SparseCategoricalCrossentropy) else {}
    if config.get("from_logits") != from_logits or config["reduction"] not in REDUCTIONS:
        raise ValueError(
            f"The loss of this model must be keras.losses.SparseCategoricalCrossentropy(from_logits={from_logits}), a "
            f"mean over targets that are ids: pass it, or leave out the loss. Received: loss={loss!r}, {config}."
        )
    return REDUCTIONS[config["reduction"]], config["ignore_class"]


def _metric(metric):
    """Returns `("accuracy" or "perplexity", its name in logs)` of a metric, or refuses it."""
    if metric == "auto":
        return "accuracy", "sparse_categorical_accuracy"
    name = metric if isinstance(metric, str) else getattr(metric, "name", "")
    by_name = metric in ("accuracy", "acc", "sparse_categorical_accuracy")
    if by_name or isinstance(metric, keras.metrics.SparseCategoricalAccuracy):
        return "accuracy", name
    if type(metric).__name__ == "Perplexity":
        return "perplexity", name
    raise ValueError(
        "A model without logits measures accuracy and perplexity only, since other metrics read all logits: leave them "
        f"out, or measure them by a model that was not passed to `without_logits`. Received: metric={name or metric!r}."
    )


def _head_of(model):
    """Returns the layer that computes the logits of a functional model, and its symbolic input, the hidden states."""
    outputs = keras.tree.flatten(getattr(model, "outputs", None) or [])
    if len(outputs) != 1:
        raise ValueError(f"The model must be functional and have one output. Received: {len(outputs)} outputs.")
    head, call, _ = outputs[0]._keras_history
    hidden = head._inbound_nodes[call].input_tensors[0]
    looked_up = len(hidden.shape) != len(outputs[0].shape)  # by an embedding whose inputs are ids
    if not isinstance(head, HEADS) or looked_up:
        raise ValueError(
            "The output of the model must be a Dense or a ReversibleEmbedding called with reverse=True: train other "
            f"outputs as before. Received: {'the lookup' if looked_up else 'the output'} of {type(head).__name__}."
        )
    return head, hidden
