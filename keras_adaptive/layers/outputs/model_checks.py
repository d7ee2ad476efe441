"""Checks of the model that calls an output layer: its compiled loss and metrics, and its sample weights.

Keras gives them to the model only. They would be silently wrong for some uses of an output layer. The perplexity of an
output that adds its loss is updated here too, since under JAX Keras keeps the metrics of `compute_loss` only.
"""

import dataclasses
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import keras

from keras_adaptive.backend.running_fit import METHODS, restore_variables, running_fit
from keras_adaptive.layers.outputs.added_loss import MeanLoss
from keras_adaptive.layers.outputs.unsorted_ids import warn_if_unsorted
from keras_adaptive.metrics.perplexity import Perplexity
from keras_adaptive.typing import Tensor

# Losses and metrics of Keras that read probabilities but have no `from_logits`, by the names of their functions.
READ_PROBABILITIES = {"categorical_generalized_cross_entropy", "dice", "kl_divergence", "poisson", "tversky"}


def register(layer: keras.layers.Layer, tensor: Tensor, mean: MeanLoss | None = None) -> Tensor:
    """Registers `tensor`, which an output layer returns, with the compiled model that calls it, if any; returns it.

    The tensor has hidden states if the layer has added the `mean` loss of their targets, and otherwise the
    log-probabilities of all words.
    """
    if mean is not None:
        perplexity_of(layer)  # before Keras lists the metrics of the model
    model = _model_of(layer)
    if model is not None:
        if not hasattr(model, "output_checks"):
            model.output_checks = ModelChecks(model)
        model.output_checks.add(layer, tensor, mean)
    return tensor


def perplexity_of(layer: keras.layers.Layer) -> Perplexity:
    """Returns the metric of the losses that an output layer adds, which no file of the model contains."""
    metrics = layer._metrics
    if not metrics:
        metrics.append(Perplexity())
    return metrics[0]


def _model_of(layer):
    """Returns the compiled model whose call contains the call of a layer, or `None`.

    Under JAX, `fit` calls the layers of the model, not the model.
    """
    model = layer._get_call_context().entry_layer
    if isinstance(model, keras.Model) and model.compiled:
        return model
    model = running_fit().get("self")
    return model if model is not None and layer in model._flatten_layers() else None


@dataclasses.dataclass(frozen=True)
class Result:
    """A tensor that an output layer returned. It is no tuple, which the tree of Keras would open."""

    reference: Callable[[], Tensor | None]  # a weak reference to the tensor
    layer: keras.layers.Layer
    is_log_probs: bool


class ModelChecks:
    """Wraps methods of a model, to raise errors in place of silently wrong values.

    `predict`, calls by hand, configs and files of the model do not change.

    Args:
        model: A compiled `keras.Model`.
    """

    def __init__(self, model: keras.Model) -> None:
        self.results: list[Result] = []
        self.outputs: list[Result | None] = []  # one per output of the model
        self.adding: str | None = None  # name of an output layer that adds its loss to the losses of the model
        self.means: dict[keras.layers.Layer, MeanLoss] = {}  # of the batch, by output layer
        self.has_own_loss = type(model).compute_loss is not keras.Model.compute_loss
        self.model = weakref.ref(model)
        for name in METHODS:
            setattr(model, name, self._checking_arguments(getattr(model, name)))
        model.compute_loss = self._checking_loss(model.compute_loss)
        model.compute_metrics = self._checking_metrics(model.compute_metrics)

    def add(self, layer: keras.layers.Layer, tensor: Tensor, mean: MeanLoss | None) -> None:
        """Registers a result of an output layer, for as long as the tensor exists."""
        self.results = [result for result in self.results if result.reference() is not None]
        self.results.append(Result(weakref.ref(tensor), layer, is_log_probs=mean is None))
        if mean is not None:
            self.means[layer] = mean
            if len(self.means) > 1:  # logs are by name
                for each in self.means:
                    perplexity_of(each).name = f"{each.name}_perplexity"
        if mean is not None and not self.has_own_loss:
            self.adding = layer.name
            if not hasattr(self.model(), "order_is_checked"):
                self._check_order(layer, running_fit())

    def _check_order(self, layer, running):
        """Warns if `fit` has arrays whose targets are not sorted by count, though the layer relies on it."""
        model, x = self.model(), running.get("x")
        if running.get("self") is not model or not hasattr(model, "inputs"):
            return
        names = [tensor.name for tensor in model.inputs]
        arrays = x if isinstance(x, dict) else dict(zip(names, keras.tree.flatten(x)))
        for call in layer._inbound_nodes:
            _, *inputs = (arrays.get(tensor.name) for tensor in call.input_tensors)
            if inputs and hasattr(inputs[0], "dtype"):
                warn_if_unsorted(model, layer, None, *inputs)

    def _checking_arguments(self, method):
        """Returns `fit` or its like with a check of its arguments. Compiled steps do not check them again."""
        signature = inspect.signature(method)

        @functools.wraps(method)
        def call(*args, **kwargs):
            self._check_weights(signature.bind(*args, **kwargs).arguments)
            return method(*args, **kwargs)

        return call

    def _checking_loss(self, compute_loss):
        @functools.wraps(compute_loss)
        def call(x=None, y=None, y_pred=None, sample_weight=None, *args, **kwargs):
            tensors = keras.tree.flatten(y_pred)
            self.outputs = [next((r for r in self.results if r.reference() is tensor), None) for tensor in tensors]
            compiled = self.model()._compile_loss
            if (running := running_fit()).get("self") is self.model():
                self._check_weights(running)
            if compiled is None:
                self._check_weights({"sample_weight": sample_weight})
            self._check_hidden(compiled, "loss", y, y_pred)
            loss = compute_loss(x, y, y_pred, sample_weight, *args, **kwargs)
            self._forget_losses()
            for layer, mean in self.means.items():
                perplexity_of(layer).update_state(mean.nll, sample_weight=mean.count)
            self.means = {}
            if compiled is not None and compiled.built:
                structure = keras.tree.pack_sequence_as(compiled._y_pred_build_structure, self.outputs)
                for path, objective, *_ in compiled._flat_losses:
                    output = functools.reduce(lambda nested, key: nested[key], path, structure)
                    self._check_log_probs(output, objective, "loss")
            return loss

        return call

    def _forget_losses(self):
        """Forgets the losses that layers have added, once their sum is computed.

        Keras finds them by `id`. Under JAX a layer of the next program could take the loss of another for its own one
        of this program, and remove it.
        """
        for layer in self.model()._flatten_layers():
            layer._loss_ids = set()

    def _checking_metrics(self, compute_metrics):
        @functools.wraps(compute_metrics)
        def call(x=None, y=None, y_pred=None, sample_weight=None, *args, **kwargs):
            compiled = self.model()._compile_metrics
            self._check_hidden(compiled, "metrics", y, y_pred)
            logs = compute_metrics(x, y, y_pred, sample_weight, *args, **kwargs)
            if compiled is not None and compiled.built and len(self.outputs) == len(keras.tree.flatten(y_pred)):
                outputs = compiled._flatten_y(keras.tree.pack_sequence_as(y_pred, self.outputs))
                for groups in (compiled._flat_metrics, compiled._flat_weighted_metrics):
                    for output, group in zip(outputs, groups):
                        for metric in group.metrics if group else ():
                            self._check_log_probs(output, metric, "metrics")
            return logs

        return call

    def _check_weights(self, arguments):
        """Refuses sample weights for data without `y`: Keras ignores them, and never gives them to layers."""
        if self.adding and arguments.get("y") is None and arguments.get("sample_weight") is not None:
            self._refuse(
                f"`{self.adding}` was called with targets and adds the loss itself, which Keras does not weight: pass "
                "the weights through an input of the model to the layer's argument `weights`, or use a `WordModel`. "
                "Received: sample_weight."
            )

    def _check_hidden(self, compiled, argument, y, y_pred):
        """Refuses a compiled loss or metrics of hidden states. Targets that are hidden states too are allowed."""
        if compiled is None or self.adding is None:
            return
        is_hidden = len(self.outputs) == 1 and self.outputs[0] is not None and not self.outputs[0].is_log_probs
        if y is None or is_hidden and len(keras.tree.flatten(y)[0].shape) != len(keras.tree.flatten(y_pred)[0].shape):
            self._refuse(
                f"`{self.adding}` was called with targets, adds the loss itself and returns hidden states: leave out "
                f"`{argument}` of `compile`, or use a `WordModel`, which reports perplexity and accuracy. "
                f"Received: {argument}."
            )

    def _check_log_probs(self, output, objective, argument):
        """Refuses a loss or metric of log-probabilities that reads probabilities."""
        if output is not None and output.is_log_probs and reads_probabilities(objective):
            self._refuse(
                f"`{output.layer.name}` returns log-probabilities, but `{objective.name}` reads probabilities: pass "
                "from_logits=True to a cross-entropy, or use a `WordModel`, which needs no `loss` and no array of the "
                f"probabilities of all words. Received: {argument}={objective.name}."
            )

    def _refuse(self, message):
        restore_variables(self.model())
        raise ValueError(message)


def reads_probabilities(objective: Any) -> bool:
    """Returns whether a loss or metric of Keras reads probabilities, not logits.

    Log-probabilities are logits too. Functions and classes of users are assumed to read log-probabilities, unless they
    have a `from_logits` that is false.
    """
    options = {**vars(objective), **getattr(objective, "_fn_kwargs", {})}
    if "from_logits" in options:
        return not options["from_logits"]
    function = getattr(objective, "fn", getattr(objective, "_fn", None))
    if getattr(function, "__module__", "").startswith("keras.") and function.__name__ in READ_PROBABILITIES:
        return True
    parameters = inspect.signature(function).parameters if callable(function) else {}
    return "from_logits" in parameters and not parameters["from_logits"].default
