"""Training step and test step of a language model."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.checks import check_equal
from keras_adaptive.backend.gradients import value_and_gradients
from keras_adaptive.backend.optimizer_step import apply_gradients, inner_optimizer
from keras_adaptive.backend.replicas import replica_count, sum_over_replicas
from keras_adaptive.backend.rows import added
from keras_adaptive.backend.run_step import run_step
from keras_adaptive.layers.regularization.seeds import micro_batch
from keras_adaptive.metrics.perplexity import Perplexity
from keras_adaptive.models.outside_ids import checked, raise_if_outside
from keras_adaptive.models.row_tables import row_tables, summed_gradients
from keras_adaptive.models.stream_state import StreamState
from keras_adaptive.ops.bands import count_outside
from keras_adaptive.ops.global_norm import clip_factor, global_norm, scaled
from keras_adaptive.ops.token_weights import token_weights

OWN_METRICS = ("loss", "metrics", "weighted_metrics")
PARTS = ("word_input", "body", "word_output")


class _OneForAllReplicas:
    """A metric that every replica updates with the same global value, so that reading one replica is enough.

    By default TensorFlow sums the metrics over replicas.
    """

    def add_variable(self, shape, initializer, dtype=None, aggregation=None, name=None):
        return super().add_variable(shape, initializer, dtype, "only_first_replica", name)


class _Mean(_OneForAllReplicas, keras.metrics.Mean):
    pass


class _Sum(_OneForAllReplicas, keras.metrics.Sum):
    pass


class _Perplexity(_OneForAllReplicas, Perplexity):
    pass


class TrainingStep(keras.Model):
    """Training step and test step of a `LanguageModel`: one update per batch, exact sums over all replicas.

    A batch is `(tokens, targets)` or `(tokens, targets, weights)`. If the rows of a batch continue the rows of the
    previous batch, `tokens` is `(tokens, begins)`: `begins`, a bool per row, marks the rows that begin a new text. See
    `stream_rows` of `compile`.
    """

    def _make_trackers(self):
        self.loss_tracker = _Mean(name="loss")
        self.perplexity_tracker = _Perplexity(name="perplexity")
        self.skipped_tracker = _Sum(name="skipped")
        self.outside_tracker = _Sum(name="outside")  # ids outside the vocabulary, not logged
        self.micro_batches = 1
        self.clip_parts = PARTS
        self.train_streams = self.test_streams = None

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.loss_tracker, self.perplexity_tracker, self.skipped_tracker, self.outside_tracker]

    def get_metrics_result(self) -> dict[str, Any]:
        """Returns the metrics after checking the ids. Keras calls it at the end of every epoch and evaluation."""
        self.check_ids()
        return super().get_metrics_result()

    def check_ids(self) -> None:
        """Checks the ids of all batches since the start of the epoch or evaluation, and waits for the device.

        Raises:
            ValueError: If an id was outside the vocabulary.
        """
        consequence = "Updates with such ids changed no weight."
        raise_if_outside(self.outside_tracker, self.vocabulary_size, consequence)

    train_on_batch = checked(keras.Model.train_on_batch)
    test_on_batch = checked(keras.Model.test_on_batch)

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        *,
        micro_batches: int = 1,
        stream_rows: int | None = None,
        clip_parts: Sequence[str] = PARTS,
        **kwargs: Any,
    ) -> None:
        """Configures training as `keras.Model.compile` does; the model has its own loss and metrics.

        Args:
            optimizer: Any Keras optimizer. Its `global_clipnorm` bounds the norm of the gradient of the whole update.
                `Adagrad`, `SGD` without momentum and `LazyAdam` update only the rows of word tables that a batch reads,
                if the model reads the tables by rows. With all other optimizers every update may change every row.
            micro_batches: Number of equal parts in which a batch of `fit` is computed to save memory (gradient
                accumulation). It must divide the batch.
            stream_rows: Number of rows of a batch, over all replicas, if each row continues the text of the same row
                of the previous batch (truncated back-propagation through time). The model then carries the body's
                state from batch to batch, in separate variables for `fit` and `evaluate`.
            clip_parts: Names of the parts whose gradients `global_clipnorm` bounds by one common norm: some of
                `word_input`, `body` and `word_output`. The gradients of the other parts are not clipped.
            **kwargs: Other arguments of `keras.Model.compile`: `jit_compile`, `run_eagerly`, `steps_per_execution`.

        Raises:
            ValueError: If a loss or metrics are given, the optimizer accumulates gradients itself, `clip_parts` is
                invalid, or `stream_rows` is given and the state of the body needs a length.
        """
        for name in OWN_METRICS:
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"A LanguageModel has its own loss and metrics: leave out `{name}`. Received: {kwargs[name]}."
                )
        optimizer = self._with_loss_scale(optimizer)
        if inner_optimizer(optimizer).gradient_accumulation_steps:
            raise ValueError(
                "A LanguageModel accumulates gradients itself: leave out the optimizer's "
                "`gradient_accumulation_steps`, make the batch as large as the update, and pass "
                f"`micro_batches` to `compile`. Received: {optimizer.get_config()['name']}."
            )
        if not clip_parts or set(clip_parts) - set(PARTS):
            raise ValueError(f"`clip_parts` must be one or more of {PARTS}. Received: clip_parts={clip_parts}.")
        bounded = inner_optimizer(optimizer).global_clipnorm and self.trainable_variables
        if bounded and not any(getattr(self, name).trainable_variables for name in clip_parts):
            raise ValueError(
                "`clip_parts` must have a part that is trained: otherwise, no gradient is clipped. "
                f"Received: clip_parts={tuple(clip_parts)}, all of which are frozen. Choose other parts."
            )
        self.micro_batches = micro_batches
        self.clip_parts = tuple(clip_parts)
        self._make_streams(stream_rows)
        super().compile(optimizer=optimizer, **kwargs)

    def _make_streams(self, rows):
        if (self.train_streams and self.train_streams.rows) == rows:
            return
        del self.train_streams, self.test_streams  # Keras then no longer tracks them
        self.train_streams = self.test_streams = None
        if rows is not None:
            self.train_streams = StreamState(self.body, rows, name="train_streams")
            self.test_streams = StreamState(self.body, rows, name="test_streams")

    def _with_loss_scale(self, optimizer):
        """Wraps the optimizer according to the dtype policy of the body; Keras would use the policy of the model."""
        optimizer = keras.optimizers.get(optimizer)
        scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if self.body.dtype_policy.name != "mixed_float16" or scales:
            return optimizer
        return keras.optimizers.LossScaleOptimizer(optimizer)

    def get_compile_config(self) -> dict[str, Any] | None:
        config = super().get_compile_config()
        rows = self.train_streams and self.train_streams.rows
        options = {"micro_batches": self.micro_batches, "stream_rows": rows, "clip_parts": self.clip_parts}
        return config and {**config, **options}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        config = keras.saving.deserialize_keras_object(config)
        self.compile(**config)
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

    def _train(self, data):
        if not self.optimizer.built:  # the loss scale exists after `build`
            self.optimizer.build(self.trainable_variables)
        tokens, begins, targets, weights = _unpack(data)
        if begins is None:  # the rows of streams continue others
            self.trained_length = max(self.trained_length or 0, tokens.shape[1] or 0) or None
        count, outside = sum_over_replicas([ops.sum(weights), self._count_outside(tokens, targets, weights)])
        scale = self._loss_scale()
        shares = weights * scale / ops.maximum(count, 1e-9)  # shares of the mean over the whole update
        layer_share = scale / (replica_count() * self.micro_batches)  # share of the losses of layers
        state = self._read(self.train_streams, begins)
        loss, words, gradients, states = 0.0, 0.0, None, []
        variables = self.trainable_variables
        tables = row_tables((self.word_input, self.word_output), variables, self.optimizer)
        parts = zip(*(_parts(arrays, self.micro_batches) for arrays in (tokens, targets, shares, state)))
        for number, rows in enumerate(parts):
            with micro_batch(number):
                (part, (part_words, state)), new = value_and_gradients(
                    self._objective, (*rows, layer_share), variables, self.non_trainable_variables, tables
                )
            loss, words = loss + part, words + part_words
            states.append(state)
            gradients = new if gradients is None else list(map(added, gradients, new))
        gradients, (loss, words) = summed_gradients(gradients, [loss, words])
        loss = self._without_outside(loss, outside)
        norm = global_norm(gradients) / scale
        finite = ops.logical_and(ops.isfinite(loss), ops.isfinite(norm))
        self.skipped_tracker.update_state(1.0 - ops.cast(finite, "float32"))
        logs = {
            **self._track_finite(loss / scale, words / scale, count),
            "gradient_norm": norm,
            "skipped": self.skipped_tracker.result(),
        }
        if begins is not None:
            self.train_streams.write(_joined(states), self._empty(begins))
        # The optimizer comes last, since its step changes the loss scale.
        apply_gradients(self.optimizer, self._clipped(gradients, norm), variables, finite)
        return logs

    def _objective(self, tokens, targets, shares, state, layer_share):
        """Returns a micro-batch's share of the objective, and `(its share of the word loss, the state after it)`."""
        hidden, state = self._hidden(tokens, state, training=True)
        words = self.word_output.training_loss(hidden, targets, shares, training=True)
        layer_losses = [ops.sum(ops.cast(loss, "float32")) for loss in self.losses]
        objective = words + layer_share * sum(layer_losses) if layer_losses else words
        return objective, keras.tree.map_structure(ops.stop_gradient, (words, state))

    def _hidden(self, tokens, state, training):
        """Returns the hidden states and the body's state after them, `()` for independent batches."""
        if not keras.tree.flatten(state):
            return self(tokens, training=training), ()
        return self(tokens, state=state, training=training)

    def _test(self, data):
        tokens, begins, targets, weights = _unpack(data)
        hidden, state = self._hidden(tokens, self._read(self.test_streams, begins), training=False)
        nll = self.word_output.nll(hidden, targets)
        outside = self._count_outside(tokens, targets, weights)
        total, count, outside = sum_over_replicas([ops.sum(nll * weights), ops.sum(weights), outside])
        total = self._without_outside(total, outside)
        if begins is not None:
            self.test_streams.write(state, self._empty(begins))
        loss = total / ops.maximum(count, 1e-9)
        return self._track(loss, loss, count)

    def _count_outside(self, tokens, targets, weights):
        """Returns the number of this replica's ids outside the vocabulary, a float32 scalar."""
        targets = count_outside(targets, self.vocabulary_size, weights)
        return targets + count_outside(tokens, self.input_vocabulary_size)

    def _without_outside(self, loss, outside):
        """Tracks the number of ids outside the vocabulary; with any, returns NaN for the loss, to skip the update."""
        self.outside_tracker.update_state(outside)
        return ops.where(outside > 0, float("nan"), loss)

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
        """Scales the gradients of `clip_parts` to a common norm of at most the optimizer's `global_clipnorm`.

        Args:
            gradients: List of one gradient per trainable variable.
            norm: The norm of all gradients.

        Returns:
            The list of all gradients.
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

    def _track(self, loss, words, count):
        self.loss_tracker.update_state(loss, sample_weight=count)
        self.perplexity_tracker.update_state(words, sample_weight=count)
        return {metric.name: metric.result() for metric in (self.loss_tracker, self.perplexity_tracker)}

    def _track_finite(self, loss, words, count):
        """Works as `_track`, but logs a loss that is not finite instead of adding it to the means."""
        finite = ops.isfinite(loss)
        kept = (ops.where(finite, value, 0.0) for value in (loss, words, count))
        return {name: ops.where(finite, mean, loss) for name, mean in self._track(*kept).items()}


def _unpack(data):
    """Returns `(tokens, begins, targets, weights)` of a batch.

    Weights are per target or, as elsewhere in Keras, per row; by default 1. `begins` is `None` for independent rows.
    """
    tokens, targets, weights = keras.utils.unpack_x_y_sample_weight(data)
    tokens, begins = tokens if isinstance(tokens, (tuple, list)) else (tokens, None)
    begins = begins if begins is None else ops.cast(begins, "bool")
    return tokens, begins, targets, token_weights(targets, weights)


def _parts(arrays, count):
    """Divides a nested structure of arrays evenly along the first axis, into a list of `count` structures."""
    flat = keras.tree.flatten(arrays)
    if not flat:
        return [arrays] * count
    rows = ops.shape(flat[0])[0]
    message = f"`micro_batches` must divide the batch. Received: micro_batches={count}, batch of "
    check_equal(rows % count, 0, message + (f"{rows}." if isinstance(rows, int) else "another size."))
    size = rows // count
    parts = [[array[part * size : (part + 1) * size] for array in flat] for part in range(count)]
    return [keras.tree.pack_sequence_as(arrays, part) for part in parts]


def _joined(states):
    """Returns the state of the batch, joined from the states of its micro-batches."""
    if len(states) == 1:
        return states[0]
    return keras.tree.map_structure(lambda *parts: ops.concatenate(parts, axis=0), *states)
