import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.ordering import computed_once, with_dependencies
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.hits import Term, hits_of_bands
from keras_adaptive.layers.outputs.tied_output import TiedOutput
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout
from keras_adaptive.ops.active_rows import update_rows
from keras_adaptive.ops.bands import band_boundaries, band_dimensions, cutoff_tuple
from keras_adaptive.ops.chunks import default_chunk_rows, tail_chunk_rows
from keras_adaptive.ops.linear_cross_entropy import cross_entropy_and_best, linear_nll, sliced_cross_entropy
from keras_adaptive.ops.long_rows import count_before, draw, pick, top_k
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AdaptiveSoftmax(TiedOutput):
    """Adaptive softmax for large vocabularies: exact probabilities at a fraction of the cost of a softmax.

    The words are divided into bands (clusters) by frequency: a head and any number of tails. The head holds the most
    frequent words and one column per tail. The probability of a word in tail i is the probability of that column times
    the word's probability within the tail, whose vectors are smaller. Training never holds the logits of a batch: the
    loss of each band is one `linear_cross_entropy` over the rows whose target is in the band. `cutoffs=()` is the plain
    softmax. Untied tables start from N(0, dim_i^−½), projections and class vectors from Xavier uniform, biases from 0.

    Without reduction, all word vectors have dimension `hidden_dim`: the bands are slices of one table, and the tails
    have no projections. A softmax that is tied to a `WordEmbedding` has this form, and so has one with `factor=None`.

    Every band must contain a word. In the published code the head keeps the column of an empty tail, so that the
    probabilities of the words add up to less than 1.

    A tied softmax shares the variables of the embedding, and files store them once. A copy of a functional model
    (`clone_model`, `from_config`, `load_model`) ties its softmax to its own embedding, found by name and class.
    `softmax.trainable = False` freezes the variables of the softmax only, not the embedding.

    Args:
        vocabulary_size: Number of classes, ordered by descending frequency.
        cutoffs: First id of every tail, strictly increasing; `()` for none.
        factor: Tail i has dimension ⌊hidden_dim / factorⁱ⌋; `None` for no reduction. Ignored if the words are tied.
        tail_dropout: Dropout rate on the projected hidden states of the tails, in training.
        input_dropout: Dropout rate on the hidden states before head and tails, in training.
        tied_to: The embedding whose tables the softmax shares: an `AdaptiveEmbedding` with the same vocabulary and
            cutoffs, or a `WordEmbedding` of the same vocabulary, whose dimension must be `hidden_dim` if there are
            cutoffs. `None` for tables of its own.
        tie_projections: Whether the tails use the transposed projections of an `AdaptiveEmbedding` too.
        use_bias: Whether every word and every tail has a bias.

    Attributes:
        tables: One variable (size_i, dim_i) per band, its own or the tied ones; without reduction a list of one
            variable (vocabulary_size, hidden_dim).
        projections: One variable (hidden_dim, dim_i) per band, or `None` where the projection is tied or missing. The
            head has one only if its dimension differs from `hidden_dim`.
        class_table: The variable (number of tails, hidden_dim) of the head's columns for the tails, never tied.
        bias, class_bias: The variables (vocabulary_size,) and (number of tails,), or `None`.

    Call arguments:
        hidden, targets, weights: As in `Output`.

    Raises:
        ValueError: If `cutoffs` do not increase or leave the vocabulary, `tied_to` has another vocabulary or other
            cutoffs, a tail would have dimension 0, or the dimension of tied projections or of a table that is tied
            without reduction is not `hidden_dim`.

    Reference:
        Grave et al., Efficient softmax approximation for GPUs, ICML 2017; Baevski and Auli, Adaptive Input
        Representations for Neural Language Modeling, ICLR 2019, section 3.1 (tied words and projections); Merity et
        al., An Analysis of Neural Language Modeling at Multiple Scales, 2018, section 3.3 (no reduction; the published
        code has the columns of the tails in reverse order).

    Example:

    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(1_000, 4_000))
    >>> hidden = np.random.normal(size=(2, 8, 64)).astype("float32")
    >>> targets = np.random.randint(0, 10_000, size=(2, 8))
    >>> softmax.nll(hidden, targets).shape
    (2, 8)
    >>> log_probs, ids = softmax.top_k(hidden, 5)  # (2, 8, 5) each
    """

    def __init__(
        self,
        vocabulary_size: int,
        cutoffs: Sequence[int],
        factor: int | None = 4,
        *,
        tail_dropout: float = 0.0,
        input_dropout: float = 0.0,
        tied_to: Input | None = None,
        tie_projections: bool = True,
        use_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(tied_to=tied_to, **kwargs)
        self.vocabulary_size = vocabulary_size
        self.cutoffs = cutoff_tuple(cutoffs)
        self.factor = factor
        self.tail_dropout = tail_dropout
        self.input_dropout = input_dropout
        self.tie_projections = tie_projections
        self.use_bias = use_bias
        self.boundaries = band_boundaries(vocabulary_size, self.cutoffs)
        if tied_to is not None and tied_to.boundaries not in (self.boundaries, (0, vocabulary_size)):
            raise ValueError(
                "`tied_to` must be an embedding with the same vocabulary and cutoffs, or a `WordEmbedding`. "
                f"Received: boundaries {tied_to.boundaries}, expected {self.boundaries}."
            )
        self._drop_input = SeededDropout(input_dropout, dtype=self.dtype_policy)
        self._drop_tail = SeededDropout(tail_dropout, dtype=self.dtype_policy)
        self._own_tables: list[Tensor] = []
        self.projections: list[Tensor | None] = []
        self.class_table = self.bias = self.class_bias = None

    @property
    def tails(self) -> int:
        """Number of bands other than the head."""
        return len(self.boundaries) - 2

    @property
    def tables(self) -> Sequence[Tensor]:
        """One variable per band. Tied tables belong to the embedding, so that files hold them once."""
        return self._own_tables if self.tied_to is None else self.tied_to.tables

    @property
    def _reduces(self):
        """Whether every band has a table of its own. Otherwise the bands are slices of one table."""
        return self.factor is not None if self.tied_to is None else self.tied_to.boundaries == self.boundaries

    def build(
        self, hidden_shape: Shape, targets_shape: Shape | None = None, weights_shape: Shape | None = None
    ) -> None:
        if self.built:
            return
        hidden_dim = hidden_shape[-1]
        self._build_tables(hidden_dim)
        for band in range(self.tails + 1):
            dim = self.tables[band if self._reduces else 0].shape[1]
            projects = dim != hidden_dim if band == 0 else self._reduces and not self._ties_projection()
            self.projections.append(self._matrix((hidden_dim, dim), f"projection_{band}") if projects else None)
        if self.tails:
            self.class_table = self._matrix((self.tails, hidden_dim), "class_table")
        if self.use_bias:
            self.bias = self._vector(self.vocabulary_size, "bias", self._bias_initializer)
        if self.use_bias and self.tails:
            self.class_bias = self._vector(self.tails, "class_bias")
        self.built = True

    def _build_tables(self, hidden_dim):
        if self.tied_to is not None:
            self.tied_to.build()
            self._check_tied(hidden_dim)
            return
        sizes, dimensions = [self.vocabulary_size], [hidden_dim]
        if self._reduces:
            sizes = [self._size(band) for band in range(self.tails + 1)]
            dimensions = band_dimensions(hidden_dim, self.factor, self.tails + 1)
        for band, (size, dim) in enumerate(zip(sizes, dimensions)):
            normal = keras.initializers.RandomNormal(stddev=dim**-0.5)
            self._own_tables.append(
                self.add_weight(shape=(size, dim), initializer=normal, name=f"table_{band}", autocast=False)
            )

    def _check_tied(self, hidden_dim):
        received = f"Received: hidden states of dimension {hidden_dim}."
        if not self.tables:
            raise ValueError(
                "`tied_to` must have a table with a vector for each word, such as a `WordEmbedding`. "
                f"Received: a {type(self.tied_to).__name__}."
            )
        if not self._reduces and self.tables[0].shape[1] != hidden_dim:
            raise ValueError(
                "Tails tied to a `WordEmbedding` need hidden states of its `output_dim`, "
                f"{self.tables[0].shape[1]}: change one of the two, or pass cutoffs=(). {received}"
            )
        if self.tails and self._ties_projection() and self.tied_to.output_dim != hidden_dim:
            raise ValueError(
                "`tie_projections` needs hidden states of the embedding's `output_dim`, "
                f"{self.tied_to.output_dim}: pass tie_projections=False. {received}"
            )

    def _ties_projection(self):
        return self.tied_to is not None and self.tie_projections and self._reduces

    def _matrix(self, shape, name):
        return self.add_weight(shape=shape, initializer="glorot_uniform", name=name, autocast=False)

    @property
    def _bias_initializer(self):
        return "zeros"

    def _vector(self, size, name, initializer="zeros"):
        return self.add_weight(shape=(size,), initializer=initializer, name=name, autocast=False)

    def _size(self, band):
        return self.boundaries[band + 1] - self.boundaries[band]

    def compute_total_nll(self, x: Tensor, targets: Tensor, weights: Tensor, training: bool | None) -> Tensor:
        return self._total_and_bests(self._terms(x, targets, training), weights, with_best=False)[0]

    def loss_and_hits(self, hidden: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        if self.num_samples:
            return super().loss_and_hits(hidden, targets, weights)
        x, ids, weights = self._flat(hidden, targets, weights)
        terms = list(self._terms(x, ids, training=True))
        total, bests = self._total_and_bests(terms, weights, with_best=True)
        return total, ops.sum(weights * hits_of_bands(terms, bests))

    def _total_and_bests(self, terms, weights, with_best):
        """Returns the sum of the losses of all bands and, `with_best`, the `Best` of each band."""
        if not self._reduces:
            terms = [term._asdict() for term in terms]
            return sliced_cross_entropy(terms, self.tables[0], self.boundaries, weights, self.bias, with_best)
        total, bests = 0.0, []
        for term in terms:
            term = term._replace(x=with_dependencies(term.x, total))  # one band after the other
            loss, best = cross_entropy_and_best(weights=weights, **term._asdict(), with_best=with_best)
            total, bests = total + loss, [*bests, best]
        return total, bests

    def compute_nll(self, x: Tensor, targets: Tensor) -> Tensor:
        return sum(linear_nll(**term._asdict()) for term in self._terms(x, targets, training=False))

    def compute_log_probs(self, x: Tensor) -> Tensor:
        words, classes = self._head(x)
        tails = [self._tail(x, tail) + classes[..., tail : tail + 1] for tail in range(self.tails)]
        return ops.concatenate([words, *tails], axis=-1)

    def compute_top_k(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Computes a tail only for rows where one of its words can still be among the k best."""
        words, classes = self._head(x)
        best, ids = top_k(words, min(k, self.boundaries[1]))
        for tail in range(self.tails):
            best, ids = self._merge_tail(tail, k, x, classes[:, tail, None], best, ids)
        return best, ids

    def _merge_tail(self, tail, k, x, column, best, ids):
        """Merges a tail's best words into the best ones; the tail's log-probability `column` (rows, 1) bounds them.

        Of equally probable words those before the tail come first. All rows need the tail while there are fewer than k
        words before it.
        """
        first, width = self.boundaries[tail + 1], min(k, self.boundaries[tail + 2])

        def merge(x, column, best, ids):
            words = self._tail(x, tail)
            values, places = top_k(words, min(k, words.shape[-1]))
            best, order = top_k(ops.concatenate([best, values + column], axis=-1), width)
            ids = ops.take_along_axis(ops.concatenate([ids, places + first], axis=-1), order, axis=-1)
            return [best, ids]

        missing = width - best.shape[-1]
        active = ids[:, 0] == ids[:, 0] if missing else ~(column[:, 0] <= best[:, -1])  # or NaN
        outputs = [ops.pad(tensor, [[0, 0], [0, missing]]) for tensor in (best, ids)] if missing else [best, ids]
        return self._update(tail + 1, merge, active, [x, column, best, ids], outputs)

    def compute_score(self, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Scores in three passes, which compute no band's logits twice for a row.

        The first pass computes, within the target's tail, its log-probability and the number of better words. The head
        then gives the target's log-probability. The last pass counts the better words of all tails above it. Of equally
        probable words the one with the smaller id is better.
        """
        within, better = ops.zeros(ops.shape(targets), "float32"), ops.zeros_like(targets)
        columns, in_tail = targets, []
        for tail, (low, high) in enumerate(zip(self.boundaries[1:], self.boundaries[2:])):
            in_tail.append((targets >= low) & (targets < high))
            function, inputs = functools.partial(self._score_own_tail, tail), [x, targets - low]
            within, better = self._update(tail + 1, function, in_tail[-1], inputs, [within, better])
            columns = ops.where(in_tail[-1], self.boundaries[1] + tail, columns)
        known = (targets >= 0) & (targets < self.vocabulary_size)
        outputs = [ops.zeros_like(within), better]
        if self.tails:
            outputs.append(ops.zeros((ops.shape(targets)[0], self.tails), "float32"))
        inputs = [x, columns, within, better]
        log_probs, better, *classes = self._update(0, self._score_head, known, inputs, outputs)
        for tail in range(self.tails):
            column = classes[0][:, tail]
            after = targets >= self.boundaries[tail + 2]
            active = known & ~in_tail[tail] & ((column > log_probs) | after & (column == log_probs))
            function = functools.partial(self._count_in_tail, tail)
            inputs = [x, column, targets, log_probs, better]
            (better,) = self._update(tail + 1, function, active, inputs, [better])
        return log_probs, better + 1

    def _score_own_tail(self, tail, x, places):
        words = computed_once(self._tail(x, tail))
        picked = pick(words, places)
        return [picked, count_before(words, picked, places)]

    def _score_head(self, x, columns, within, better):
        both = computed_once(ops.log_softmax(self._head_logits(x)))
        log_probs = pick(both, columns) + within
        better = better + count_before(both[:, : self.boundaries[1]], log_probs, columns)
        classes = both[:, self.boundaries[1] :]
        return [log_probs, better, classes] if self.tails else [log_probs, better]

    def _count_in_tail(self, tail, x, column, targets, log_probs, better):
        words = self._tail(x, tail) + column[:, None]
        return [better + count_before(words, log_probs, targets - self.boundaries[tail + 1])]

    def compute_draw(self, x: Tensor, uniform: Tensor) -> Tensor:
        """Draws from the head first and computes a tail only for rows that drew its column."""
        ids = columns = draw(self._head_logits(x), uniform[0])
        for tail in range(self.tails):
            drawn, function = columns == self.boundaries[1] + tail, functools.partial(self._draw_within, tail)
            (ids,) = self._update(tail + 1, function, drawn, [x, uniform[1]], [ids])
        return ids

    def _draw_within(self, tail, x, uniform):
        places = draw(self._logits(x, tail + 1), uniform)
        return [ops.where(places < 0, -1, places + self.boundaries[tail + 1])]

    def _update(self, band, function, active, inputs, outputs):
        return update_rows(function, active, inputs, outputs, self._size(band))

    def _terms(self, x, targets, training):
        """Yields one `Term` per band."""
        x = self._drop_input(x, training=training)
        bounds = self.boundaries
        tail = sum(ops.cast(targets >= low, "int32") for low in bounds[1:-1]) if self.tails else 0
        head = ops.where(targets < bounds[1], targets, bounds[1] - 1 + tail)
        head = ops.where(targets < bounds[-1], head, -1)
        tables = self.tables if self._reduces else self._slices(self.tables[0])
        biases = [None] * len(tables) if self.bias is None else self._slices(self.bias)
        classes = self._class_logits(x) if self.tails else None
        yield Term(self._project(x, 0), tables[0], head, classes, bias=biases[0])
        for band in range(1, self.tails + 1):
            inside = (targets >= bounds[band]) & (targets < bounds[band + 1])
            yield Term(
                self._drop_tail(self._project(x, band), training=training),
                tables[band],
                ops.where(inside, targets - bounds[band], -1),
                chunk_rows=tail_chunk_rows(x, self._size(band)),
                bias=biases[band],
            )

    def _slices(self, variable):
        return [self._slice(variable, band) for band in range(self.tails + 1)]

    def _slice(self, variable, band):
        return ops.convert_to_tensor(variable)[self.boundaries[band] : self.boundaries[band + 1]]

    def _cast(self, weight):
        return ops.cast(weight, self.compute_dtype)

    def _project(self, x, band):
        """Projects (…, hidden_dim) to (…, dim_i) by the band's matrix or the transposed tied one, if there is any."""
        if self.projections[band] is not None:
            return ops.matmul(x, self._cast(self.projections[band]))
        if band == 0 or not self._reduces:
            return x
        return ops.matmul(x, ops.transpose(self._cast(self.tied_to.projections[band])))

    def _class_logits(self, x):
        """Returns the logits of the tails in the head: (…, number of tails) float32."""
        logits = ops.cast(ops.matmul(x, ops.transpose(self._cast(self.class_table))), "float32")
        return logits if self.class_bias is None else logits + ops.cast(self.class_bias, "float32")

    def _logits(self, x, band):
        table = self.tables[band] if self._reduces else self._slice(self.tables[0], band)
        logits = ops.cast(ops.matmul(self._project(x, band), ops.transpose(self._cast(table))), "float32")
        return logits if self.bias is None else logits + ops.cast(self._slice(self.bias, band), "float32")

    def _head_logits(self, x):
        """Returns the logits of the head's words, followed by the columns of the tails."""
        logits = self._logits(x, 0)
        return ops.concatenate([logits, self._class_logits(x)], axis=-1) if self.tails else logits

    def _head(self, x):
        """Returns the log-probabilities of the head's words (…, cutoff_0) and of the tails (…, tails)."""
        both = ops.log_softmax(self._head_logits(x))
        return both[..., : self.boundaries[1]], both[..., self.boundaries[1] :]

    def _tail(self, x, tail):
        """Returns the log-probabilities (…, size) of a tail's words given the tail."""
        return ops.log_softmax(self._logits(x, tail + 1))

    def logits_in_training(self, rows: int) -> int:
        """Returns the number of logits in the largest chunk of any band."""
        sizes = [high - low for low, high in zip(self.boundaries, self.boundaries[1:])]
        dims = [table.shape[1] for table in self.tables] * len(sizes)  # one for all bands, or one for each
        return max(size * default_chunk_rows(rows, size, dim) for size, dim in zip(sizes, dims))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "cutoffs": self.cutoffs,
            "factor": self.factor,
            "tail_dropout": self.tail_dropout,
            "input_dropout": self.input_dropout,
            "tie_projections": self.tie_projections,
            "use_bias": self.use_bias,
        }
