"""What a model that predicts words measures by the ranks of its targets."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_adaptive.backend.checks import check_same_shape
from keras_adaptive.metrics.rank_metric import RankMetric
from keras_adaptive.ops.word_ids import word_ids
from keras_adaptive.typing import Tensor

OTHERS = ("loss", "perplexity", "accuracy", "gradient_norm", "skipped", "outside", "z_loss")  # names in logs


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Metrics of ranks, and the items that the ranks leave out. It hides the metrics from the files of a model.

    Attributes:
        metrics: List of `RankMetric`.
        exclude_input: Name of the input of the model that holds the items that a row has seen, or `None`.
    """

    metrics: Sequence[RankMetric] = ()
    exclude_input: str | None = None

    @classmethod
    def of(
        cls, model: keras.Model, metrics: RankMetric | Sequence[RankMetric] | None, exclude_input: str | None
    ) -> Self:
        """Returns the `Ranking` of the arguments of `compile`.

        Raises:
            ValueError: If there are other metrics, if logs or replicas cannot hold them, or the model has no such
                input.
        """
        metrics = [metrics] if isinstance(metrics, (str, RankMetric)) else list(metrics or [])
        if any(not isinstance(metric, RankMetric) for metric in metrics):
            raise ValueError(
                "`metrics` must be metrics of ranks, such as `HitRate(10)` or, for the accuracy, `HitRate(1)`, since "
                "others would need the probabilities of all words; the perplexity is always reported. A `WordModel` "
                f"takes 'accuracy' too. Received: metrics={metrics}."
            )
        ranking = cls(metrics, exclude_input)
        ranking._check(model)
        return ranking

    def _check(self, model):
        names = [metric.name for metric in self.metrics]
        if len({*names, *OTHERS}) < len(names) + len(OTHERS):
            raise ValueError(f"Metrics must have different names: pass `name`. Received: {names} beside {OTHERS}.")
        strategy = getattr(model, "distribute_strategy", None)  # of TensorFlow
        variables = [variable.value for metric in self.metrics for variable in metric.variables]
        if strategy and not all(map(strategy.extended.variable_created_in_scope, variables)):
            raise ValueError(f"Metrics must be created within `strategy.scope()`, as the model was. Received: {names}.")
        inputs = [tensor.name for tensor in model.inputs]
        if self.exclude_input is not None and not (self.metrics and self.exclude_input in inputs):
            raise ValueError(
                f"`exclude_input` must be one of the inputs of the model, {inputs}, and needs a metric of ranks, such "
                f"as `HitRate(10)`. Received: exclude_input={self.exclude_input!r}, metrics={names}."
            )

    def excluded(self, model: keras.Model, inputs: Any, targets: Tensor) -> Tensor | None:
        """Returns the items that each target's rank leaves out, (…, items) int32 with −1 for none, or `None`.

        Items up to the position of a target are left out if there is a target for each position, and else all.
        """
        if self.exclude_input is None:
            return None
        by_name = isinstance(inputs, dict)
        place = self.exclude_input if by_name else [tensor.name for tensor in model.inputs].index(self.exclude_input)
        items = (inputs if by_name else keras.tree.flatten(inputs))[place]
        items = ops.convert_to_tensor(word_ids(items, model.word_output.vocabulary_size))
        if len(items.shape) != len(targets.shape):
            check_same_shape(items[..., 0], targets.shape, "exclude_input", "the targets, and an axis of items")
            return items
        check_same_shape(items, targets.shape, "exclude_input", "the targets")
        places = ops.arange(ops.shape(items)[-1], dtype="int32")
        return ops.where(places <= places[:, None], items[..., None, :], -1)
