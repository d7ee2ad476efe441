"""Keras models that train and evaluate as another model of the same variables does."""

from typing import Any

import keras

from keras_adaptive.models.checked_data import check_class_weight, checked
from keras_adaptive.models.training_step import TrainingStep


class DelegatedTraining:
    """Mixin of a Keras model whose `fit` and `evaluate` run the steps of its `trainer`, and log its metrics.

    `compile` of a subclass compiles the trainer, and passes the trainer's optimizer on to Keras.

    Attributes:
        trainer: Model with a `word_output` and the same variables, in the same order.
    """

    trainer: TrainingStep

    @property
    def metrics(self) -> list[keras.Metric]:
        return self.trainer.metrics

    def get_metrics_result(self) -> dict[str, Any]:
        return self.trainer.get_metrics_result()

    def check_ids(self) -> None:
        """Raises a ValueError if batches since the start of the epoch or evaluation had ids outside the vocabulary."""
        self.trainer.check_ids()

    def fit(self, x: Any = None, y: Any = None, **kwargs: Any) -> keras.callbacks.History:
        check_class_weight(kwargs)
        return super().fit(x, y, **kwargs)

    @checked
    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        return super().train_on_batch(x, y, sample_weight, **kwargs)

    @checked
    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        return super().test_on_batch(x, y, sample_weight, **kwargs)

    def train_step(self, *arguments: Any) -> Any:
        return self.trainer.train_step(*self._batch_of_trainer(*arguments))

    def test_step(self, *arguments: Any) -> Any:
        return self.trainer.test_step(*self._batch_of_trainer(*arguments))

    def _batch_of_trainer(self, *arguments):
        """Returns the arguments of a step with the batch that the trainer reads."""
        return arguments

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        self.trainer._maybe_symbolic_build()

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        self.trainer._symbolic_build(iterator=iterator, data_batch=data_batch)  # Keras' own computes the logits
