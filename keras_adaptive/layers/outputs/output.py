from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_adaptive.backend.checks import check_same_shape
from keras_adaptive.backend.recording import recording
from keras_adaptive.backend.replicas import check_summed_by_keras
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.added_loss import mean_loss
from keras_adaptive.layers.outputs.defaults import (
    TrainingSums,
    alternatives_in_chunks,
    best_in_chunks,
    dense_sums,
    hits_by_top_k,
    scores_in_chunks,
)
from keras_adaptive.layers.outputs.left_out import allowed_words, excluded_ids
from keras_adaptive.layers.outputs.model_checks import perplexity_of, register
from keras_adaptive.layers.outputs.sampling import Sampling
from keras_adaptive.losses.row_loss import RowLoss
from keras_adaptive.losses.sampled import SampledLoss
from keras_adaptive.ops.long_rows import distinct, draw, top_k, without_ids
from keras_adaptive.ops.token_weights import token_weights
from keras_adaptive.ops.word_ids import word_ids
from keras_adaptive.typing import Tensor


class Output(Sampling, keras.layers.Layer):
    """Base class of output layers, which map hidden states to the probabilities of the next word.

    The public methods cast the hidden states to the compute dtype, build the layer on its first use, and flatten
    the leading axes. A subclass implements the methods named `compute_…` on rows: `x` (rows, hidden_dim) in the compute
    dtype, `targets` (rows,) int32, −1 for every id outside the vocabulary, and `weights` (rows,) float32 under every
    dtype policy. Only the `x` of `compute_log_probs` keeps its axes. `compute_nll` and `compute_log_probs` are required
    and exact. The others have defaults that are correct for every output. A subclass that trains on another sum than
    the loss of all words overrides `training_loss`. All methods may run outside of Keras' autocast: cast weights to the
    compute dtype.

    Args:
        loss: What training minimizes, by default the cross-entropy: a `losses.RowLoss`, such as `CrossEntropy` with
            label smoothing. Optional.

    Attributes:
        vocabulary_size: Number of classes.
        boundaries: Tuple of the first id of every band, followed by `vocabulary_size`; `(0, vocabulary_size)` without
            bands.
        tables: List of the variables that hold the word vectors, which may be empty. Devices can divide them.
        projections: List of one variable (hidden_dim, dim_i) or `None` per table; or empty.
        bias: Variable (vocabulary_size,) with the bias of each word, or `None`.
        row_variables: List of the variables, tied ones included, that training reads through `take_rows` only.
            Optimizers such as Adagrad then update only the rows that were read.
        num_samples: Number of noise words per update, 0 if training uses none.
        loss_classes: Tuple of the base classes of the losses that the layer takes.
        tied_to: The `Input` whose tables the layer shares, or `None`.

    Call arguments:
        hidden: (…, hidden_dim).
        targets: (…) ids, optional, in a dtype that holds all of them exactly. With targets the layer adds the mean loss
            per target to the losses of the model and returns `hidden`, so that `model.compile(optimizer)` and
            `model.fit([inputs, targets])` train it and report its perplexity.
        weights: (…) float, optional: the weight of each target in that mean, 0 for padding. Only their ratios matter.
        return_hidden: Whether to return `hidden` unchanged, which makes the layer a part of a functional model such as
            a `LanguageModel` without computing the log-probabilities of a whole batch.

    Without targets the call returns `log_probs(hidden)`: (…, vocabulary_size). A model that ends so takes a loss with
    `from_logits=True`; losses of probabilities are errors. With targets, masked ones (by the masks of Keras on `hidden`
    and `targets`) have weight 0, and others outside the vocabulary make the loss NaN, without a gradient. Keras ignores
    `sample_weight` and `metrics` then, so they are errors: pass `weights`, or use `keras_adaptive.models.WordModel`.

    Raises:
        ValueError: If `loss` is of another class.

    Example:

    >>> class Uniform(Output):
    ...     vocabulary_size, boundaries = 10, (0, 10)
    ...
    ...     def compute_nll(self, x, targets):
    ...         return np.log(10) * keras.ops.ones(targets.shape)
    ...
    ...     def compute_log_probs(self, x):
    ...         return keras.ops.full((*x.shape[:-1], 10), -np.log(10), "float32")
    >>> Uniform().nll(np.ones((2, 8, 16)), np.zeros((2, 8), "int32")).shape
    (2, 8)
    """

    tables: Sequence[Tensor] = ()
    projections: Sequence[Tensor | None] = ()
    row_variables: Sequence[Tensor] = ()
    bias: Tensor | None = None
    num_samples: int = 0
    loss_classes: tuple[type, ...] = (RowLoss,)

    def __init__(self, *, loss: RowLoss | SampledLoss | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if loss is not None and not isinstance(loss, self.loss_classes):
            names = " or a ".join(one.__name__ for one in self.loss_classes)
            raise ValueError(f"The `loss` of a {type(self).__name__} must be a {names}. Received: loss={loss!r}.")
        self.loss = loss
        self.autocast = False  # Keras would round targets and weights to the compute dtype
        self.supports_masking = True
        self.tied_to: Input | None = None  # a class attribute would hide the layer that torch stores among its modules

    def __call__(self, hidden: Tensor, targets: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
        if targets is None and not args:
            return super().__call__(hidden, **kwargs)
        on_host = targets is not None and not ops.is_tensor(targets)  # tensors keep their masks
        targets = word_ids(targets, self.vocabulary_size) if on_host else targets
        return super().__call__(hidden, targets, *args, **kwargs)

    def call(
        self,
        hidden: Tensor,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
        training: bool | None = None,
        hidden_mask: Tensor | None = None,
        targets_mask: Tensor | None = None,
        return_hidden: bool = False,
    ) -> Tensor:
        if return_hidden:
            return hidden
        if targets is None:
            return register(self, self.compute_log_probs(self._prepared(hidden)))
        hidden = ops.cast(hidden, self.compute_dtype)
        weights = token_weights(targets, weights, hidden_mask, targets_mask)
        mean = mean_loss(self, hidden, targets, weights, training)
        self.add_loss(mean.loss)
        return register(self, hidden, mean)

    def compute_output_spec(
        self, hidden: Tensor, targets: Tensor | None = None, *args: Any, return_hidden: bool = False, **kwargs: Any
    ) -> keras.KerasTensor:
        if return_hidden:
            return keras.KerasTensor(hidden.shape, hidden.dtype)
        if targets is None:
            return keras.KerasTensor((*hidden.shape[:-1], self.vocabulary_size), "float32")
        check_summed_by_keras("An output layer that adds its loss")
        perplexity_of(self)
        return keras.KerasTensor(hidden.shape, self.compute_dtype)

    def attach(self, hidden: Tensor) -> None:
        """Builds the layer for hidden states (…, hidden_dim), for models that own the layer but do not call it."""
        if not self.built:
            self.build(hidden.shape)

    def logits_in_training(self, rows: int) -> int:
        """Returns the number of logits that training holds at a time, 0 by default, to estimate the memory of a run.

        Args:
            rows: Number of hidden states of a batch.
        """
        return 0

    def training_loss(
        self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None, training: bool | None = True
    ) -> Tensor:
        """Returns the weighted sum that training minimizes: `total_nll`, with the same arguments, or of the `loss`."""
        if self.loss is None or not training:
            return self.total_nll(hidden, targets, weights, training=training)
        return dense_sums(self, *self._flat(hidden, targets, weights))[0]

    def training_sums(self, hidden: Tensor, targets: Tensor, weights: Tensor, with_hits: bool = False) -> TrainingSums:
        """Returns `training_loss` and what a training step reports beside it.

        Args:
            hidden, targets, weights: As in `total_nll`.
            with_hits: Whether to find out which targets are the most probable words.
        """
        hits = hits_by_top_k(self, hidden, targets, weights) if with_hits else None
        if self.loss is None or self.num_samples or type(self).training_loss is not Output.training_loss:
            return TrainingSums(self.training_loss(hidden, targets, weights), hits=hits)
        return TrainingSums(*dense_sums(self, *self._flat(hidden, targets, weights)), hits)

    def total_nll(
        self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None, training: bool | None = False
    ) -> Tensor:
        """Returns Σ weight · −log p(target), whose gradient is computed in the same pass.

        Args:
            hidden: (…, hidden_dim).
            targets: (…) ids. An id outside the vocabulary adds nothing.
            weights: (…) float, constants, by default 1. A row of weight 0 costs nothing.
            training: Whether to apply dropout.

        Returns:
            A float32 scalar, in nats.
        """
        x, targets, weights = self._flat(hidden, targets, weights)
        return self.compute_total_nll(x, targets, weights, training)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Returns −log p(target) of every target, without dropout.

        Args:
            hidden: (…, hidden_dim).
            targets: (…) ids. An id outside the vocabulary gives 0.

        Returns:
            (…) float32, in nats.
        """
        with recording(hidden):
            return ops.reshape(self.compute_nll(self._rows(hidden), self._ids(targets, hidden)), ops.shape(targets))

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Returns the log-probability of every word.

        Args:
            hidden: (…, hidden_dim).

        Returns:
            (…, vocabulary_size) float32, in nats.
        """
        with recording(hidden):
            return self.compute_log_probs(self._prepared(hidden))

    def score(self, hidden: Tensor, targets: Tensor, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the log-probability and the rank of every target, in one pass over the vocabulary.

        Args:
            hidden: (…, hidden_dim).
            targets: (…) ids. An id outside the vocabulary gets the log-probability 0 and rank 1.
            exclude: (…, n) ids of words that ranks leave out, such as the items that a user has seen, in any order and
                with repetitions. An id outside the vocabulary, such as −1, excludes nothing, nor does the target.
                Optional.

        Returns:
            `(log_probs, ranks)`, (…) float32 in nats and (…) int32; rank 1 is the most probable word. Ranks are the
            places in `top_k`, up to rounding: of equally probable words the one with the smallest id comes first. NaN
            has the last rank of all words. The log-probabilities are those among all words, with `exclude` too.
        """
        with recording():
            rows, ids = self._rows(hidden), self._ids(targets, hidden)
            excluded = [] if exclude is None else [distinct(excluded_ids(exclude, hidden, self.vocabulary_size), ids)]
            log_probs, ranks = self.compute_score(rows, ids, *excluded)
        ranks = ops.where(ops.isnan(log_probs), self.vocabulary_size, ranks)
        return ops.reshape(log_probs, ops.shape(targets)), ops.reshape(ranks, ops.shape(targets))

    def rank(self, hidden: Tensor, targets: Tensor, exclude: Tensor | None = None) -> Tensor:
        """Returns the rank of every target: `score(hidden, targets, exclude)[1]`."""
        return self.score(hidden, targets, exclude)[1]

    def alternatives(self, hidden: Tensor, targets: Tensor, k: int) -> tuple[Tensor, ...]:
        """Returns the score of every target, the entropy of the distribution and its k most probable words.

        All of them come from one computation of the log-probabilities, for a chunk of rows at a time.

        Args:
            hidden: (…, hidden_dim).
            targets: (…) ids, as in `score`.
            k: Number of words, at most `vocabulary_size`.

        Returns:
            `(log_probs, ranks, entropies, best_log_probs, best_ids)`: the first two as in `score`, (…) float32 in
            nats, and the last two as in `top_k`, (…, k) each.
        """
        self.check_k(k)
        shape = ops.shape(targets)
        with recording():
            log_probs, ranks, *rest = self.compute_alternatives(self._rows(hidden), self._ids(targets, hidden), k)
        arrays = [log_probs, ops.where(ops.isnan(log_probs), self.vocabulary_size, ranks), *rest]
        return tuple(ops.reshape(array, (*shape, *array.shape[1:])) for array in arrays)

    def top_k(
        self, hidden: Tensor, k: int, exclude: Tensor | None = None, allowed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the k most probable words, exactly.

        Args:
            hidden: (…, hidden_dim).
            k: Number of words, at most `vocabulary_size`.
            exclude: (…, n) ids of words to leave out, such as the items that a user has seen, in any order and with
                repetitions. An id outside the vocabulary, such as −1, excludes nothing. In a TensorFlow graph that does
                not know n, the log-probabilities of all words are computed, for a chunk of rows at a time. Optional.
            allowed: (vocabulary_size,) bool: the words that may be returned, for all rows. Optional.

        Returns:
            `(log_probs, ids)`, (…, k) each, in descending order. Equally probable words are in the order of their ids,
            and NaN comes last. The log-probabilities are those among all words. If fewer than k words remain, or have a
            probability, the last log-probabilities are −∞ and their ids −1.

        Raises:
            ValueError: If `k` is out of range, `exclude` or `allowed` has another shape, or an array allows no word.
        """
        self.check_k(k)
        shape = (*ops.shape(hidden)[:-1], k)
        more = [] if allowed is None else [allowed_words(allowed, self.vocabulary_size)]
        with recording():
            rows = self._rows(hidden)
            if exclude is None:
                log_probs, ids = self.compute_top_k(rows, k, *more)
            else:
                exclude = excluded_ids(exclude, hidden, self.vocabulary_size)
                log_probs, ids = self._top_k_without(rows, k, exclude, *more)
            if exclude is not None or more:
                ids = ops.where(log_probs == -float("inf"), -1, ids)
        return ops.reshape(log_probs, shape), ops.reshape(ids, shape)

    def _top_k_without(self, x, k, exclude, *allowed):
        """Returns `(log_probs, ids)` of rows without the ids `exclude` (rows, n); TensorFlow may not know n."""
        if exclude.shape[-1] is not None:
            enough = min(k + exclude.shape[-1], self.vocabulary_size)
            return without_ids(*self.compute_top_k(x, enough, *allowed), exclude, k)
        values = lambda x: _among(self.compute_log_probs(x), *allowed)  # noqa: E731
        return best_in_chunks(values, x, k, exclude, self.vocabulary_size)

    def check_k(self, k: int) -> None:
        """Raises a `ValueError` if there is no such number of words."""
        if not 0 < k <= self.vocabulary_size:
            raise ValueError(f"`k` must be between 1 and {self.vocabulary_size}. Received: k={k}.")

    def for_inference(self) -> "Output":
        """Returns the layer to predict with, by default this layer."""
        return self

    def compute_total_nll(self, x: Tensor, targets: Tensor, weights: Tensor, training: bool | None) -> Tensor:
        """Returns Σ weight · −log p(target) of rows, by default from `compute_nll`."""
        return ops.sum(weights * self.compute_nll(x, targets))

    def compute_nll(self, x: Tensor, targets: Tensor) -> Tensor:
        """Returns −log p(target) of rows, (rows,) float32; 0 for a target outside the vocabulary."""
        raise self._cannot("nll")

    def compute_log_probs(self, x: Tensor) -> Tensor:
        """Returns the log-probabilities (…, vocabulary_size) float32 for `x` (…, hidden_dim)."""
        raise self._cannot("log_probs")

    def compute_score(self, x: Tensor, targets: Tensor, exclude: Tensor | None = None) -> Sequence[Tensor]:
        """Returns `(log_probs, ranks)` of rows, as `score` does, by default from `compute_log_probs`.

        The ids `exclude` (rows, n) of a row are all different, or −1, and not its target.
        """
        return scores_in_chunks(self.compute_log_probs, x, targets, exclude, self.vocabulary_size)

    def compute_alternatives(self, x: Tensor, targets: Tensor, k: int) -> Sequence[Tensor]:
        """Returns the arrays of `alternatives` for rows, by default from `compute_log_probs`."""
        return alternatives_in_chunks(self.compute_log_probs, x, targets, k, self.vocabulary_size)

    def compute_top_k(self, x: Tensor, k: int, allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns `(log_probs, ids)`, (rows, k) each, as `top_k` does, by default from `compute_log_probs`.

        Words for which `allowed` (vocabulary_size,) is false have the log-probability −∞.
        """
        return top_k(_among(self.compute_log_probs(x), allowed), k)

    def compute_draw(self, x: Tensor, uniform: Tensor) -> Tensor:
        """Draws one id per row by the numbers `uniform` (2, rows), by default from `compute_log_probs`."""
        return draw(self.compute_log_probs(x), uniform[0])

    def _cannot(self, method):
        return NotImplementedError(
            f"`{type(self).__name__}` does not implement `{method}`. `AdaptiveSoftmax` does; with `cutoffs=()` it is "
            "the plain softmax."
        )

    def _prepared(self, hidden):
        """Returns the hidden states in the compute dtype, and builds the layer on its first use."""
        hidden = ops.cast(hidden, self.compute_dtype)
        self.attach(hidden)
        return hidden

    def _flat(self, hidden, targets, weights):
        """Returns hidden states, targets and weights as rows; weights are 1 by default."""
        targets = self._ids(targets, hidden)
        if weights is None:
            return self._rows(hidden), targets, ops.ones(ops.shape(targets))
        check_same_shape(weights, hidden.shape[:-1], "weights", "the hidden states")
        return self._rows(hidden), targets, ops.reshape(ops.cast(weights, "float32"), [-1])

    def _rows(self, hidden):
        return ops.reshape(self._prepared(hidden), [-1, hidden.shape[-1]])

    def _ids(self, targets, hidden):
        check_same_shape(targets, hidden.shape[:-1], "targets", "the hidden states")
        return ops.reshape(word_ids(targets, self.vocabulary_size), [-1])

    @property
    def has_penalty(self) -> bool:
        """Whether the loss has a part that logs report by itself."""
        return self.loss is not None and self.loss.has_penalty

    def get_config(self) -> dict[str, Any]:
        loss = {} if self.loss is None else {"loss": keras.saving.serialize_keras_object(self.loss)}
        return {**super().get_config(), **loss}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        loss = config.get("loss")
        loss = {"loss": keras.saving.deserialize_keras_object(loss)} if isinstance(loss, dict) else {}
        return cls(**{**config, **loss})


def _among(log_probs, allowed=None):
    return log_probs if allowed is None else ops.where(allowed, log_probs, -float("inf"))
