import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_adaptive.backend.recording import recording
from keras_adaptive.layers.outputs.banded_softmax import BandedSoftmax
from keras_adaptive.layers.outputs.defaults import TrainingSums, alternatives_in_chunks
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout
from keras_adaptive.layers.regularization.seeds import SharedSeedGenerator, current_micro_batch
from keras_adaptive.losses.row_loss import RowLoss
from keras_adaptive.losses.sampled import SampledLoss
from keras_adaptive.ops.logit_chunks import Wanted
from keras_adaptive.typing import Tensor


class Softmax(Output):
    """Base class of softmax layers, which differ in where their word vectors come from.

    A subclass sets `boundaries` and implements `softmax()`, and `vectors(ids)` if it can be trained on noise words, for
    which it calls `_build_noise()` when it is built. `softmax()` passes on `_soft_cap`; otherwise predictions ignore
    the bound of the loss. `get_config` adds the arguments below that the constructor takes, except the loss.

    Args:
        vocabulary_size: Number of classes.
        input_dropout: Dropout rate on the hidden states, in training.
        tail_dropout: Dropout rate on the projected hidden states of tails, in training.
        loss: A `losses.RowLoss`, or, for a softmax without tails, a `losses.SampledLoss`.

    Attributes:
        noise: The source of noise words of a built layer whose loss is a `losses.NoiseLoss`.

    Example:

    >>> from keras_adaptive.layers.outputs.banded_softmax import Band, BandedSoftmax
    >>> from keras_adaptive.layers.outputs.softmax import Softmax
    >>> class ScaledSoftmax(Softmax):
    ...     def build(self, hidden_shape):
    ...         self.boundaries = (0, self.vocabulary_size)
    ...         self.table = self.add_weight(shape=(self.vocabulary_size, hidden_shape[-1]))
    ...         self.scale = self.add_weight(shape=(hidden_shape[-1],), initializer="ones")
    ...         self.tables = [self.table]
    ...
    ...     def softmax(self):
    ...         table, scale = (keras.ops.cast(weight, self.compute_dtype) for weight in (self.table, self.scale))
    ...         band = Band(table, bias=None, project=lambda x: x * scale)
    ...         return BandedSoftmax([band], self.boundaries, soft_cap=self._soft_cap)
    >>> ScaledSoftmax(100).log_probs(np.ones((2, 8, 16))).shape
    (2, 8, 100)
    """

    loss_classes = (RowLoss, SampledLoss)

    def __init__(
        self,
        vocabulary_size: int,
        *,
        input_dropout: float = 0.0,
        tail_dropout: float = 0.0,
        loss: RowLoss | SampledLoss | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(loss=loss, **kwargs)
        self.vocabulary_size = vocabulary_size
        self.input_dropout = input_dropout
        self.tail_dropout = tail_dropout
        self._drop_input = SeededDropout(input_dropout, dtype=self.dtype_policy)
        self._drop_tail = SeededDropout(tail_dropout, dtype=self.dtype_policy)
        if isinstance(loss, SampledLoss):
            loss.check(vocabulary_size)
            self.num_samples = loss.num_samples
            self.seed_generator = SharedSeedGenerator(loss.seed)

    def softmax(self) -> BandedSoftmax:
        """Returns the softmax over tensors of the word vectors, all of them."""
        raise NotImplementedError(f"`{type(self).__name__}` must implement `softmax()`.")

    def vectors(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns the vectors (words, dim) and the biases (words,), or `None`, of the words with these ids."""
        raise NotImplementedError(f"`{type(self).__name__}` must implement `vectors(ids)`.")

    def _build_noise(self):
        if self.num_samples:
            self.noise = self.loss.source(self.vocabulary_size)

    def _noise_initializer(self):
        """Returns the initializer of biases: zeros, or the log-probabilities of the noise."""
        if not self.num_samples or not self.loss.starts_from_noise:
            return "zeros"
        return lambda shape, dtype=None: ops.log(
            self.noise.distribution.probabilities(ops.arange(shape[0], dtype="int32"))
        )

    def retrieval_vectors(self) -> np.ndarray:
        """Returns a vector of each word, for an index of nearest neighbors by inner product.

        Inner products with `retrieval_queries` have the order of `top_k`, up to rounding. They are log-probabilities
        plus a number per row or, with a `soft_cap`, the logits without that bound. The columns are those of the tables,
        a block for each band, a column of the biases, if there are any, and a column for each tail. Bands that are
        slices of one table share a block.

        Returns:
            A NumPy array (vocabulary_size, dim) float32.

        Raises:
            ValueError: If the layer is not built, or if the loss bounds the logits of tails by a `soft_cap`.

        Example:

        >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(1_000, 4_000))
        >>> hidden = np.random.normal(size=(2, 64)).astype("float32")
        >>> queries = softmax.retrieval_queries(hidden)  # builds the softmax
        >>> vectors = softmax.retrieval_vectors()  # one row of 64 + 16 + 4 + 2 numbers per word
        >>> inner_products = keras.ops.matmul(queries, vectors.T)  # (2, 10_000)
        >>> log_probs = softmax.log_probs(hidden)  # differs from them by a number per row
        """
        if not self.built:
            raise ValueError(
                "`retrieval_vectors` needs the word vectors: call or build the layer first. Received: a layer that is "
                "not built."
            )
        with recording():
            return self.softmax().retrieval_vectors()

    def retrieval_queries(self, hidden: Tensor) -> Tensor:
        """Returns the query of each hidden state, for an index of `retrieval_vectors`.

        Without tails this costs the projection of the hidden states at most. With tails it computes all logits of the
        tails, a chunk of rows at a time, for their log-normalizers.

        Args:
            hidden: (…, hidden_dim).

        Returns:
            (…, dim) float32.

        Raises:
            ValueError: If the loss bounds the logits of tails by a `soft_cap`.
        """
        with recording():
            rows = self._rows(hidden)  # builds the layer
            queries = self.softmax().retrieval_queries(rows)
        return ops.reshape(queries, (*ops.shape(hidden)[:-1], queries.shape[-1]))

    def training_loss(
        self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None, training: bool | None = True
    ) -> Tensor:
        if not training:
            return self.total_nll(hidden, targets, weights)
        if self.num_samples:
            return self._sampled_total(*self._flat(hidden, targets, weights))
        return self._exact_sums(hidden, targets, weights).loss

    def training_sums(self, hidden: Tensor, targets: Tensor, weights: Tensor, with_hits: bool = False) -> TrainingSums:
        has_own_loss = type(self).training_loss is not Softmax.training_loss
        exact = not self.num_samples and not has_own_loss
        return (self._exact_sums if exact else super().training_sums)(hidden, targets, weights, with_hits)

    def _exact_sums(self, hidden, targets, weights, with_hits=False):
        x, targets, weights = self._flat(hidden, targets, weights)
        softmax = self.softmax()
        inputs = self._inputs(softmax, x, targets, weights, training=True)
        total, rows = softmax.total_and_rows(inputs, Wanted.of(self.loss, with_hits, self._learns_words))
        found = {"hits": ops.sum(weights * softmax.hits(inputs, rows))} if with_hits else {}
        if self.loss is not None:
            found["nll"] = sum(ops.sum(weights * of_band.nll) for of_band in rows)
            if self.loss.has_penalty:
                found["penalty"] = sum(ops.sum(weights * self.loss.penalty(of_band.log_totals)) for of_band in rows)
        return TrainingSums(total, **found)

    def _sampled_total(self, x, targets, weights):
        x, targets = self._drop_input(x, training=True), ops.where(targets < self.vocabulary_size, targets, -1)
        if self.loss.needs_whole_batch and current_micro_batch() > 0:
            raise ValueError(
                f"This `{type(self.loss).__name__}` compares the rows of an update with one another: train with "
                "micro_batches=1, or choose noise from a distribution. Received: several micro-batches."
            )
        return self.loss.total(x, targets, weights, self)

    def compute_total_nll(self, x: Tensor, targets: Tensor, weights: Tensor, training: bool | None) -> Tensor:
        softmax = self.softmax()
        inputs = self._inputs(softmax, x, targets, weights, training)
        return softmax.total_and_rows(inputs, Wanted(None, softmax.soft_cap, table_gradients=self._learns_words))[0]

    def _inputs(self, softmax, x, targets, weights, training):
        """Returns the inputs of the losses of all bands, after dropout."""
        drop = functools.partial(self._drop_tail, training=training)
        return softmax.inputs(self._drop_input(x, training=training), targets, weights, drop)

    @property
    def _learns_words(self):
        """Whether the gradients of the word vectors and their biases are needed."""
        return self.quantization_mode is None

    @property
    def _soft_cap(self):
        return None if self.loss is None else self.loss.soft_cap

    def compute_nll(self, x: Tensor, targets: Tensor) -> Tensor:
        return self.softmax().nll(x, targets)

    def compute_log_probs(self, x: Tensor) -> Tensor:
        return self.softmax().log_probs(x)

    def compute_top_k(self, x: Tensor, k: int, allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.softmax().top_k(x, k, allowed)

    def compute_score(self, x: Tensor, targets: Tensor, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.softmax().score(x, targets, exclude)

    def compute_alternatives(self, x: Tensor, targets: Tensor, k: int) -> Sequence[Tensor]:
        return alternatives_in_chunks(self.softmax().log_probs, x, targets, k, self.vocabulary_size)

    def compute_draw(self, x: Tensor, uniform: Tensor) -> Tensor:
        return self.softmax().draw(x, uniform)
