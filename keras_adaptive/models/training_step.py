"""Training step and test step of models whose output layer predicts words."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_adaptive.backend.checks import check_traced_together
from keras_adaptive.backend.gradients import value_and_gradients
from keras_adaptive.backend.optimizer_step import apply_gradients, inner_optimizer
from keras_adaptive.backend.replicas import replica_count, sum_over_replicas
from keras_adaptive.backend.run_step import run_step
from keras_adaptive.backend.sparse.gradients import added
from keras_adaptive.backend.sparse.tables import row_tables, summed_gradients
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.layers.regularization.seeds import micro_batch
from keras_adaptive.metrics.rank_metric import RankMetric
from keras_adaptive.models.checked_data import CheckedData, check_data, checked, raise_if_outside
from keras_adaptive.models.micro_batches import divided, joined
from keras_adaptive.models.ranking import Ranking
from keras_adaptive.models.replicated_metrics import ReplicatedMean, ReplicatedPerplexity, ReplicatedSum
from keras_adaptive.ops.global_norm import clip_factor, global_norm, scaled
from keras_adaptive.ops.token_weights import token_weights
from keras_adaptive.ops.word_ids import count_outside
from keras_adaptive.typing import Tensor

OWN_METRICS = ("loss", "weighted_metrics")
PARTS = ("word_input", "body", "word_output")


class _Counts(NamedTuple):
    """Float32 scalars of an update: the sum of the weights of all targets, and the divisor of the loss."""

    weights: Any
    divisor: Any


class TrainingStep(CheckedData):
    """Training step and test step of a model with a `word_output`: one update per batch, exact sums over all replicas.

    A batch is `(inputs, targets)` or `(inputs, targets, weights)`. If the rows of a batch continue the rows of the
    previous batch, `inputs` is `(tokens, begins)`: `begins`, a bool per row, marks the rows that begin a new text. See
    `stream_rows` of `LanguageModel.compile`.

    A subclass with other batches overrides `_unpack`, one with a state `_hidden`.

    Attributes:
        word_output: The `Output` that predicts the words.
        reports_accuracy: Whether steps measure the accuracy.
        ranking: The `Ranking` with the metrics of ranks that the test step measures.
        reduction: Divisor of the loss of a batch, as in Keras: the weights of all targets ("mean_with_sample_weight"),
            or their number ("sum_over_batch_size"). Perplexity and accuracy are always means over the weights.
    """

    word_output: Output
    reports_accuracy = False
    ranking = Ranking()
    reduction = "mean_with_sample_weight"
    clip_parts: Sequence[str] = PARTS
    micro_batches = 1

    def _make_trackers(self):
        self.loss_tracker = ReplicatedMean(name="loss")
        self.perplexity_tracker = ReplicatedPerplexity(name="perplexity")
        self.skipped_tracker = ReplicatedSum(name="skipped")
        self.outside_tracker = ReplicatedSum(name="outside")  # ids outside the vocabulary, not logged
        self.penalty_tracker = ReplicatedMean(name="z_loss") if self.word_output.has_penalty else None
        self.train_streams = self.test_streams = None  # class attributes would hide what torch stores as modules

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.loss_tracker, *self._word_trackers(False), self.skipped_tracker, self.outside_tracker]

    def get_metrics_result(self) -> dict[str, Any]:
        """Returns the metrics after checking the ids. Keras calls it at the end of every epoch and evaluation."""
        self.check_ids()
        return super().get_metrics_result()

    def check_ids(self) -> None:
        """Checks the ids of all batches since the start of the epoch or evaluation, and waits for the device.

        Raises:
            ValueError: If an id was outside the vocabulary.
        """
        raise_if_outside(self.outside_tracker, self.word_output.vocabulary_size)

    train_on_batch = checked(keras.Model.train_on_batch)
    test_on_batch = checked(keras.Model.test_on_batch)

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        metrics: RankMetric | Sequence[RankMetric] | None = None,
        *,
        micro_batches: int = 1,
        exclude_input: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Configures training as `WordModel.compile` does, without accuracy."""
        kind = type(self).__name__
        for name in OWN_METRICS:
            if kwargs.get(name) is not None:
                raise ValueError(f"A {kind} has its own loss: leave out `{name}`. Received: {name}={kwargs[name]}.")
        optimizer = self._with_loss_scale(optimizer, kwargs.get("auto_scale_loss", True))
        if inner_optimizer(optimizer).gradient_accumulation_steps:
            raise ValueError(
                f"A {kind} accumulates gradients itself: leave out the optimizer's "
                "`gradient_accumulation_steps`, make the batch as large as the update, and pass "
                f"`micro_batches` to `compile`. Received: {optimizer.get_config()['name']}."
            )
        if micro_batches > 1 and self._has_own_loss:
            raise ValueError(
                f"A {kind} with a `compute_loss` of its own computes a batch as a whole: pass micro_batches=1. "
                f"Received: micro_batches={micro_batches}."
            )
        self.ranking = Ranking.of(self, metrics, exclude_input)
        self.micro_batches = micro_batches
        super().compile(optimizer=optimizer, **kwargs)

    def _with_loss_scale(self, optimizer, wanted):
        """Wraps the optimizer if the layers compute in float16; Keras would use the policy of the model."""
        optimizer = keras.optimizers.get(optimizer)
        scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        policies = {layer.dtype_policy.name for layer in (self, *self.layers, self.word_output)}
        if scales or not wanted or "mixed_float16" not in policies:
            return optimizer
        return keras.optimizers.LossScaleOptimizer(optimizer)

    def get_compile_config(self) -> dict[str, Any] | None:
        config = super().get_compile_config()
        metrics = [*(["accuracy"] if self.reports_accuracy else []), *self.ranking.metrics]
        return config and {
            **config,
            "metrics": [keras.saving.serialize_keras_object(metric) for metric in metrics] or None,
            "exclude_input": self.ranking.exclude_input,
            "micro_batches": self.micro_batches,
            "optimizer_is_built": self.optimizer.built,  # an untrained model has no state to save
        }

    def compile_from_config(self, config: dict[str, Any]) -> None:
        config = keras.saving.deserialize_keras_object(config)
        built = config.pop("optimizer_is_built", True)
        self.compile(**config)
        if built:  # for the state in the file
            self.optimizer.build(self.trainable_variables)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Builds only the optimizer, since the model is built; Keras would run a symbolic step."""
        if self.compiled and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)

    def train_step(self, *arguments: Any) -> dict[str, Any]:
        return run_step(self, self._train, arguments, self.optimizer.variables)

    def test_step(self, *arguments: Any) -> dict[str, Any]:
        return run_step(self, self._test, arguments)

    def compute_loss(
        self,
        x: Any = None,
        y: Tensor | None = None,
        y_pred: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool | None = True,
    ) -> Tensor:
        """Returns the loss of a batch and updates perplexity and accuracy, for a `train_step` of your own.

        `fit` calls this method if a subclass overrides it. Under JAX, a `train_step` of your own calls
        `stateless_compute_loss`.

        Args:
            x: The inputs, of which ranks may leave out items.
            y: Target ids (batch, …).
            y_pred: Hidden states (batch, …, hidden_dim).
            sample_weight: Weights (batch, …), or one per row, by default 1.
            training: Whether the loss is the one that training minimizes, with dropout.

        Returns:
            The mean loss per target, in nats, plus the losses of layers. A replica returns its part of their sum.
        """
        check_traced_together(y_pred, self.word_output.trainable_variables)
        targets = ops.convert_to_tensor(y)  # on the device; torch reads batches on the CPU
        weights = token_weights(targets, sample_weight)
        weights, counts = self._unmasked(y_pred, targets, weights, self._counts(targets, weights))
        rows = y_pred, targets, weights / _nonzero(counts.divisor)
        words, *known = self._word_sums(*rows) if training else self._evaluated_sums(*rows, x)
        outside = self._count_outside(None, targets, weights)
        *shares, outside = sum_over_replicas(list(map(ops.stop_gradient, (*known, outside))))
        self.outside_tracker.update_state(outside)
        self._track_words(shares, counts, training)
        return words + sum(ops.sum(ops.cast(loss, "float32")) for loss in self.losses) / replica_count()

    @property
    def _has_own_loss(self):
        return type(self).compute_loss is not TrainingStep.compute_loss

    def _train(self, data):
        if not self.optimizer.built:  # the loss scale exists after `build`
            self.optimizer.build(self.trainable_variables)
        inputs, begins, targets, weights = self._unpack(data)
        scale = self._loss_scale()
        factors = scale, self._counts(targets, weights)
        state = self._read(self.train_streams, begins)
        sums, gradients, states = 0.0, None, []
        variables, others = self.trainable_variables, [*self.non_trainable_variables, *self.metrics_variables]
        tables = row_tables(self._row_layers(), variables, self.optimizer)
        parts = zip(*(divided(arrays, self.micro_batches) for arrays in (inputs, targets, weights, state)))
        for number, rows in enumerate(parts):
            with micro_batch(number):
                (_, (part_sums, counts, state)), new = value_and_gradients(
                    self._objective, (*rows, *factors), variables, others, tables
                )
            sums = sums + part_sums
            states.append(state)
            gradients = new if gradients is None else list(map(added, gradients, new))
        gradients, (sums,) = summed_gradients(gradients, [sums])
        loss = sums[0]
        if self._has_own_loss:
            means = [loss / scale]
        else:
            means, outside = [sums[place] / scale for place in range(sums.shape[0] - 1)], sums[-1]
            loss = means[0] = self._without_outside(means[0], outside)
        norm = global_norm(gradients) / scale
        finite = ops.logical_and(ops.isfinite(loss), ops.isfinite(norm))
        self.skipped_tracker.update_state(1.0 - ops.cast(finite, "float32"))
        logs = {
            **self._track_finite(means, _Counts(*counts)),
            "gradient_norm": norm,
            "skipped": self.skipped_tracker.result(),
        }
        if begins is not None:
            self.train_streams.write(joined(states), self._empty(begins))
        # The optimizer comes last, since its step changes the loss scale.
        apply_gradients(self.optimizer, self._clipped(gradients, norm), variables, finite)
        return logs

    def _objective(self, inputs, targets, weights, state, scale, counts):
        """Returns a micro-batch's share of the objective, and `(its sums, the counts of targets, the state after it)`.

        The sums are its shares of the objective and of what `_word_trackers` track, and the number of ids outside the
        vocabulary; of an own `compute_loss`, its share of the objective alone.
        """
        hidden, state = self._hidden(inputs, state, training=True)
        masked, counts = self._unmasked(hidden, targets, weights, _Counts(*counts))
        if self._has_own_loss:
            objective = scale * self.compute_loss(inputs, targets, hidden, weights, training=True)
            sums = ops.reshape(objective, [1])
            return objective, keras.tree.map_structure(ops.stop_gradient, (sums, tuple(counts), state))
        words, *known = self._word_sums(hidden, targets, masked * (scale / _nonzero(counts.divisor)))
        layer_losses = [ops.sum(ops.cast(loss, "float32")) for loss in self.losses]
        share = scale / (replica_count() * self.micro_batches)
        objective = words + share * sum(layer_losses) if layer_losses else words
        sums = ops.stack([objective, *known, self._count_outside(inputs, targets, masked)])
        return objective, keras.tree.map_structure(ops.stop_gradient, (sums, tuple(counts), state))

    def _hidden(self, inputs, state, training):
        """Returns the hidden states and the body's state after them, `()` for independent batches."""
        return self(inputs, training=training), state

    def _unmasked(self, hidden, targets, weights, counts):
        """Returns the weights of a micro-batch without masked targets, and the counts of the whole update."""
        return weights, counts

    def _counts(self, targets, weights, mask=None):
        """Returns the counts of the targets of an update, over all replicas."""
        total = sum_over_replicas(ops.sum(weights))
        if self.reduction == "mean_with_sample_weight":
            return _Counts(total, total)
        counted = ops.ones_like(weights) if mask is None else ops.cast(mask, "float32")
        return _Counts(total, sum_over_replicas(ops.sum(counted)))

    def _word_sums(self, hidden, targets, shares):
        """Returns the sum that training minimizes, and then the sums that `_word_trackers` track in training."""
        sums = self.word_output.training_sums(hidden, targets, shares, self.reports_accuracy)
        known = [sums.loss if sums.nll is None else sums.nll, sums.hits, sums.penalty]
        return [sums.loss, *(ops.stop_gradient(one) for one in known if one is not None)]

    def _evaluated_sums(self, hidden, targets, shares, inputs):
        """Returns the sum of the losses, and then the sums that `_word_trackers` track in an evaluation."""
        targets = ops.where(shares != 0, targets, -1)  # targets without weight cost nothing
        if not self.reports_accuracy and not self.ranking.metrics:
            return [ops.sum(shares * self.word_output.nll(hidden, targets))] * 2
        log_probs, ranks = self.word_output.score(hidden, targets, self.ranking.excluded(self, inputs, targets))
        nll = -ops.sum(shares * log_probs)
        values = [ops.cast(ranks == 1, "float32")] if self.reports_accuracy else []
        values += [metric.values(ranks) for metric in self.ranking.metrics]
        return [nll, nll, *(ops.sum(shares * one) for one in values)]

    def _word_trackers(self, training):
        """Returns the metrics of the words: perplexity and, if any, accuracy, ranks and the loss's penalty."""
        accuracy = [self.accuracy_tracker] if self.reports_accuracy else []
        ranks = [] if training else self.ranking.metrics
        return [self.perplexity_tracker, *accuracy, *ranks, *([self.penalty_tracker] if self.penalty_tracker else [])]

    def _test(self, data):
        inputs, begins, targets, weights = self._unpack(data)
        hidden, state = self._hidden(inputs, self._read(self.test_streams, begins), training=False)
        masked, counts = self._unmasked(hidden, targets, weights, self._counts(targets, weights))
        if self._has_own_loss:
            loss = self.compute_loss(inputs, targets, hidden, weights, training=False)
            return self._track([sum_over_replicas(loss)], counts, training=False)
        words, *known = self._evaluated_sums(hidden, targets, masked / _nonzero(counts.divisor), inputs)
        outside = self._count_outside(inputs, targets, masked)
        words, *known, outside = sum_over_replicas([words, *known, outside])
        words = self._without_outside(words, outside)
        if begins is not None:
            self.test_streams.write(state, self._empty(begins))
        return self._track([words + self._evaluated_losses(), *known], counts, training=False)

    def _evaluated_losses(self):
        """Returns the part of the loss of an evaluation that is not of the words."""
        return 0.0

    def _count_outside(self, inputs, targets, weights):
        """Returns the number of this replica's ids outside the vocabulary, a float32 scalar."""
        return count_outside(targets, self.word_output.vocabulary_size, weights)

    def _without_outside(self, loss, outside):
        """Tracks the number of ids outside the vocabulary; with any, returns NaN for the loss, to skip the update."""
        self.outside_tracker.update_state(outside)
        return ops.where(outside > 0, float("nan"), loss)

    def _unpack(self, data):
        """Returns `(inputs, begins, targets, weights)` of a batch.

        Weights are per target or, as elsewhere in Keras, per row; by default 1. `begins` is `None` for independent
        rows.
        """
        inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(data)
        check_data({"x": inputs, "y": targets}, rows=False)  # a replica may have no rows
        return inputs, None, targets, token_weights(targets, weights)

    def _read(self, streams, begins):
        """Returns the state from which this replica's rows continue, `()` for independent batches."""
        if (streams is None) != (begins is None):
            raise ValueError(
                "`compile(stream_rows=…)` and batches of `((tokens, begins), targets, weights)` belong together: use "
                f"both or neither. Received: stream_rows={streams and streams.rows}, and batches "
                f"{'with' if begins is not None else 'without'} `begins`."
            )
        return () if streams is None else streams.read(begins, self._empty(begins))

    def _empty(self, begins):
        """Returns the body's initial state for this replica's rows."""
        return self.body.initial_state(ops.shape(begins)[0])

    def _loss_scale(self):
        """Returns the factor that training applies to the loss and the optimizer removes from the gradients."""
        return ops.convert_to_tensor(self.optimizer.scale_loss(ops.ones(())))

    def _clipped(self, gradients, norm):
        """Returns the gradients, those of `clip_parts` with a common norm of at most the optimizer's `global_clipnorm`.

        `norm` is the norm of all gradients.
        """
        bound = inner_optimizer(self.optimizer).global_clipnorm
        if not bound:
            return gradients
        everywhere = set(self.clip_parts) == set(PARTS)
        parts = [] if everywhere else [getattr(self, name) for name in self.clip_parts]
        chosen = {id(variable) for part in parts for variable in part.trainable_variables}
        places = [i for i, variable in enumerate(self.trainable_variables) if everywhere or id(variable) in chosen]
        group = [gradients[place] for place in places]
        if not group:  # all `clip_parts` were frozen after `compile`
            return gradients
        norm = norm if everywhere else global_norm(group)
        group = scaled(group, clip_factor(norm, bound))
        return [dict(zip(places, group)).get(i, gradient) for i, gradient in enumerate(gradients)]

    def _track(self, means, counts, training):
        """Adds a batch's loss and what the words have, divided alike, to the metrics, and returns the metrics."""
        loss, *shares = means
        self.loss_tracker.update_state(loss, sample_weight=counts.divisor)
        self._track_words(shares, counts, training)
        return {tracker.name: tracker.result() for tracker in (self.loss_tracker, *self._word_trackers(training))}

    def _track_words(self, shares, counts, training):
        """Adds the sums over a batch's targets, divided as its loss, to the metrics of the words as means."""
        for tracker, share in zip(self._word_trackers(training), shares):
            mean = share * (counts.divisor / _nonzero(counts.weights))
            keras.metrics.Mean.update_state(tracker, mean, sample_weight=counts.weights)  # metrics of ranks take ranks

    def _track_finite(self, means, counts):
        """Works as `_track`, but logs a loss that is not finite instead of adding it to the means."""
        loss, finite = means[0], ops.isfinite(means[0])
        kept = [ops.where(finite, value, 0.0) for value in (*counts, *means)]
        logs = self._track(kept[2:], _Counts(*kept[:2]), training=True)
        return {name: ops.where(finite, mean, loss) for name, mean in logs.items()}


def _nonzero(count):
    """Returns a divisor: the sum of the weights of all targets, or 1 if there are none."""
    return ops.where(count == 0, 1.0, count)
