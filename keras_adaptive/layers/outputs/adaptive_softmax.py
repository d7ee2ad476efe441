import keras
from keras import ops

from keras_adaptive.backend.ordering import with_dependencies
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout
from keras_adaptive.ops.active_rows import over_active_rows
from keras_adaptive.ops.bands import band_boundaries, band_dimensions
from keras_adaptive.ops.linear_cross_entropy import default_chunk_rows, linear_cross_entropy, linear_nll
from keras_adaptive.ops.long_rows import draw, top_k

TAIL_CHUNKS = 16  # at least, into which a tail's loss would cut the whole batch: the tail has a few of its rows


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AdaptiveSoftmax(keras.layers.Layer):
    """The exact probability of the next word over a large vocabulary, at a fraction of the cost of a softmax.

    Frequent words share the head with one column per tail; a word of tail i has the probability of that column
    times its probability within the tail, whose vectors are smaller. Training never holds the logits of a batch:
    every band's loss is one `linear_cross_entropy` over the rows that belong to it. `cutoffs=()` is the plain softmax.

    Grave et al. 2017; with tied words and projections Baevski & Auli 2019, section 3.1. No biases. Own tables start
    from N(0, dim_i^−½), projections and class vectors xavier uniform.

    Args:
        vocabulary_size: number of classes, ordered by descending frequency.
        cutoffs: first id of every tail, strictly increasing; `()` for none.
        factor: tail i has dimension ⌊hidden_dim / factorⁱ⌋. Not used when the words are tied.
        tail_dropout: rate on the projected hidden vectors of the tails, in training.
        input_dropout: rate on the hidden vectors before head and tails, in training.
        tied_to: an `AdaptiveEmbedding` of the same vocabulary and cutoffs, whose tables are used.
        tie_projections: whether the tails use the transposed projections of `tied_to` too.

    Attributes:
        tables: one variable (size_i, dim_i) per band, its own or the tied ones.
        projections: one variable (hidden_dim, dim_i) per band, `None` where there is none: for tied projections, and
            for the head unless its dimension differs from the hidden one.
        class_table: the variable (number of tails, hidden_dim) of the head's columns for the tails, never tied.

    Call arguments:
        hidden: (…, hidden_dim).
        targets: (…) ids, optional. With targets the layer adds the mean loss per target to the model's losses
            (so that `model.compile(optimizer)` and `model.fit([inputs, targets])` train it) and returns `hidden`.
        weights: (…) float, optional: the weight of each target in that mean, 0 for padding.

    Without targets the call returns `log_probs(hidden)`: (…, vocabulary_size).

    Raises:
        ValueError: on bad cutoffs, on a `tied_to` of another vocabulary or other cutoffs, on a tail of dimension 0, and
            on tied projections whose dimension is not the hidden one.

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
        vocabulary_size,
        cutoffs,
        factor=4,
        tail_dropout=0.0,
        input_dropout=0.0,
        tied_to=None,
        tie_projections=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.cutoffs = tuple(cutoffs)
        self.factor = factor
        self.tail_dropout = tail_dropout
        self.input_dropout = input_dropout
        self.tied_to = tied_to
        self.tie_projections = tie_projections
        self.boundaries = band_boundaries(vocabulary_size, cutoffs)
        if tied_to is not None and tied_to.boundaries != self.boundaries:
            raise ValueError(
                "`tied_to` must be an embedding with the same vocabulary and cutoffs. "
                f"Received: boundaries {tied_to.boundaries}, expected {self.boundaries}."
            )
        self._drop_input = SeededDropout(input_dropout, dtype=self.dtype_policy)
        self._drop_tail = SeededDropout(tail_dropout, dtype=self.dtype_policy)
        self._own_tables, self.projections, self.class_table = [], [], None

    @property
    def tails(self):
        """Number of bands behind the head."""
        return len(self.boundaries) - 2

    @property
    def tables(self):
        """One variable per band. The tied ones belong to the embedding, or files would hold them twice."""
        return self._own_tables if self.tied_to is None else self.tied_to.tables

    def build(self, hidden_shape, targets_shape=None, weights_shape=None):
        if self.built:
            return
        hidden_dim = hidden_shape[-1]
        self._build_tables(hidden_dim)
        for band, table in enumerate(self.tables):
            own = (table.shape[1] != hidden_dim) if band == 0 else not self._ties_projection()
            self.projections.append(self._matrix((hidden_dim, table.shape[1]), f"projection_{band}") if own else None)
        if self.tails:
            self.class_table = self._matrix((self.tails, hidden_dim), "class_table")
        self.built = True

    def _build_tables(self, hidden_dim):
        if self.tied_to is not None:
            self.tied_to.build()
            if self._ties_projection() and self.tails and self.tied_to.output_dim != hidden_dim:
                raise ValueError(
                    "`tie_projections` needs hidden vectors of the embedding's `output_dim`, "
                    f"{self.tied_to.output_dim}: pass tie_projections=False. "
                    f"Received: hidden vectors of dimension {hidden_dim}."
                )
            return
        dimensions = band_dimensions(hidden_dim, self.factor, self.tails + 1)
        for band, dim in enumerate(dimensions):
            size = self.boundaries[band + 1] - self.boundaries[band]
            normal = keras.initializers.RandomNormal(stddev=dim**-0.5)
            self._own_tables.append(
                self.add_weight(shape=(size, dim), initializer=normal, name=f"table_{band}", autocast=False)
            )

    def _ties_projection(self):
        return self.tied_to is not None and self.tie_projections

    def _matrix(self, shape, name):
        return self.add_weight(shape=shape, initializer="glorot_uniform", name=name, autocast=False)

    def call(self, hidden, targets=None, weights=None, training=None):
        if targets is None:
            return self.log_probs(hidden)
        weights = ops.ones(ops.shape(targets), "float32") if weights is None else ops.cast(weights, "float32")
        count = ops.sum(weights)
        shares = weights / ops.where(count == 0, 1.0, count)
        self.add_loss(self.total_nll(hidden, targets, shares, training=training))
        return hidden

    def compute_output_spec(self, hidden, targets=None, weights=None, training=None):
        if targets is None:
            return keras.KerasTensor((*hidden.shape[:-1], self.vocabulary_size), "float32")
        return keras.KerasTensor(hidden.shape, self.compute_dtype)

    def total_nll(self, hidden, targets, weights=None, training=False):
        """Σ weight · −log p(target), the sum that training minimises, with its gradient made in the same pass.

        Args:
            hidden: (…, hidden_dim).
            targets: (…) ids. An id outside the vocabulary counts nothing.
            weights: (…) float, constants, by default 1. A row of weight 0 costs nothing.
            training: whether to apply dropout.

        Returns: a float32 scalar, in nats.
        """
        targets = ops.reshape(targets, [-1])
        weights = ops.ones(ops.shape(targets)) if weights is None else ops.reshape(weights, [-1])
        total = 0.0
        for x, table, ids, *rest in self._terms(hidden, targets, training):
            total = total + linear_cross_entropy(with_dependencies(x, total), table, ids, weights, *rest)
        return total

    def nll(self, hidden, targets):
        """−log p(target) in nats: (…, hidden_dim) and (…) ids to (…) float32. For evaluation: no dropout."""
        shape = ops.shape(targets)
        terms = self._terms(hidden, ops.reshape(targets, [-1]), training=False)
        return ops.reshape(sum(linear_nll(*term) for term in terms), shape)

    def log_probs(self, hidden):
        """The log-probability of every word: (…, hidden_dim) to (…, vocabulary_size) float32."""
        hidden = self._prepare(hidden)
        words, classes = self._head(hidden)
        tails = [self._tail(hidden, tail) + classes[..., tail : tail + 1] for tail in range(self.tails)]
        return ops.concatenate([words, *tails], axis=-1)

    def top_k(self, hidden, k):
        """The k most probable words, exactly; a tail is computed only while one of its words can still be among them.

        Args:
            hidden: (…, hidden_dim).
            k: number of words, at most `vocabulary_size`.

        Returns: `(log_probs, ids)`, (…, k) each, in descending order.
        """
        if not 0 < k <= self.vocabulary_size:
            raise ValueError(f"`k` must be between 1 and {self.vocabulary_size}. Received: k={k}.")
        shape = ops.shape(hidden)[:-1]
        hidden = self._flat(hidden)
        words, classes = self._head(hidden)
        best, ids = top_k(words, min(k, self.boundaries[1]))
        missing = [[0, 0], [0, k - best.shape[-1]]]
        best, ids = ops.pad(best, missing, constant_values=-float("inf")), ops.pad(ids, missing)
        for tail in range(self.tails):
            best, ids = self._consider(tail, hidden, classes[:, tail, None], best, ids)
        return ops.reshape(best, (*shape, k)), ops.reshape(ids, (*shape, k))

    def rank(self, hidden, targets):
        """The place of every target among all words, 1 for the most probable: (…, hidden_dim), (…) ids to (…) int32.

        Exact up to rounding; a tail is computed only where one of its words can be more probable than the target.
        """
        shape, hidden = ops.shape(targets), self._flat(hidden)
        targets = ops.cast(ops.reshape(targets, [-1]), "int32")
        own = -self.nll(hidden, targets)
        places, classes = ops.ones_like(targets), ops.zeros((ops.shape(targets)[0], max(self.tails, 1)))

        def pass_head(rows, live, carry):
            hidden, targets, own, places = rows
            words, classes = self._head(hidden)
            classes = classes if self.tails else ops.zeros((ops.shape(words)[0], 1))
            return [places + _count_above(words, own, targets), classes], carry

        def pass_tail(rows, live, carry):
            hidden, targets, own, places, cluster = rows
            words = self._tail(hidden, tail) + cluster[:, None]
            return [places + _count_above(words, own, targets - self.boundaries[tail + 1])], carry

        inputs = [hidden, targets, own]
        everywhere = ops.ones_like(targets, dtype="bool")
        places, classes = self._where(0, everywhere, pass_head, [*inputs, places], [places, classes])
        for tail in range(self.tails):
            cluster = classes[:, tail]
            (places,) = self._where(tail + 1, cluster > own, pass_tail, [*inputs, places, cluster], [places])
        return ops.reshape(places, shape)

    def sample(self, hidden, temperature=1.0, top_k=None, seed=None):
        """Draws one word per hidden vector from the exact distribution.

        At temperature 1 the head is drawn from first, and a tail computed only when its column was drawn.

        Args:
            hidden: (…, hidden_dim).
            temperature: the log-probabilities are divided by it; below 1 sharpens, 0 takes the most probable word.
            top_k: draw among the k most probable words only, optional.
            seed: int or `keras.random.SeedGenerator`.

        Returns: (…) int32 ids.
        """
        hidden = self._prepare(hidden)
        shape = ops.shape(hidden)[:-1]
        uniform = keras.random.uniform((2, *shape), dtype="float32", seed=seed)
        return self.sample_with(hidden, uniform, temperature, top_k)

    def sample_with(self, hidden, uniform, temperature=1.0, top_k=None):
        """As `sample`, from given numbers: `uniform` (2, …) in [0, 1), a function of which the draw is."""
        if temperature < 0:
            raise ValueError(f"`temperature` must not be negative. Received: temperature={temperature}.")
        if temperature == 0:
            return self.top_k(hidden, 1)[1][..., 0]
        if top_k is not None:
            log_probs, ids = self.top_k(hidden, min(top_k, self.vocabulary_size))
            choice = draw(log_probs / temperature, uniform[0])
            return ops.take_along_axis(ids, choice[..., None], axis=-1)[..., 0]
        if temperature != 1:
            return draw(self.log_probs(hidden) / temperature, uniform[0])
        shape = ops.shape(hidden)[:-1]
        hidden, uniform = self._flat(hidden), ops.reshape(uniform, [2, -1])
        ids = columns = draw(self._head_logits(hidden), uniform[0])
        for tail in range(self.tails):
            ids = self._draw_within(tail, hidden, columns == self.boundaries[1] + tail, ids, uniform[1])
        return ops.reshape(ids, shape)

    def _flat(self, hidden):
        """Hidden vectors in the compute dtype as (rows, hidden_dim)."""
        return ops.reshape(self._prepare(hidden), [-1, hidden.shape[-1]])

    def _prepare(self, hidden):
        """Hidden vectors in the compute dtype, with the weights made if this is the first call."""
        hidden = ops.cast(hidden, self.compute_dtype)
        self.build(hidden.shape)
        return hidden

    def _cast(self, weight):
        return ops.cast(weight, self.compute_dtype)

    def _project(self, hidden, band):
        """(…, hidden_dim) to (…, dim_i): by the band's own projection, the transposed tied one, or not at all."""
        if self.projections[band] is not None:
            return ops.matmul(hidden, self._cast(self.projections[band]))
        if band == 0:
            return hidden
        return ops.matmul(hidden, ops.transpose(self._cast(self.tied_to.projections[band])))

    def _class_logits(self, hidden):
        """(…, number of tails) in float32; they stand behind the words of the head."""
        return ops.cast(ops.matmul(hidden, ops.transpose(self._cast(self.class_table))), "float32")

    def _logits(self, hidden, band):
        table = self._cast(self.tables[band])
        return ops.cast(ops.matmul(self._project(hidden, band), ops.transpose(table)), "float32")

    def _head_logits(self, hidden):
        """(…, cutoff_0 + number of tails): the words of the head and behind them the tails."""
        logits = self._logits(hidden, 0)
        return ops.concatenate([logits, self._class_logits(hidden)], axis=-1) if self.tails else logits

    def _head(self, hidden):
        """Log-probabilities of the head's words (…, cutoff_0) and of the tails (…, number of tails)."""
        both = ops.log_softmax(self._head_logits(hidden))
        return both[..., : self.boundaries[1]], both[..., self.boundaries[1] :]

    def _tail(self, hidden, tail):
        """Log-probabilities (…, size) of a tail's words given the tail."""
        return ops.log_softmax(self._logits(hidden, tail + 1))

    def _consider(self, tail, hidden, cluster, best, ids):
        """The best words after a tail of log-probability `cluster` (rows, 1), which no word of it can exceed."""
        k, first = best.shape[-1], self.boundaries[tail + 1]

        def merge(rows, live, carry):
            hidden, cluster, best, ids = rows
            logits = self._logits(hidden, tail + 1)
            values, places = top_k(logits, min(k, logits.shape[-1]))
            values = values - ops.logsumexp(logits, axis=-1, keepdims=True) + cluster
            best, order = ops.top_k(ops.concatenate([best, values], axis=-1), k)
            ids = ops.take_along_axis(ops.concatenate([ids, places + first], axis=-1), order, axis=-1)
            return [best, ids], carry

        return self._where(tail + 1, cluster[:, 0] > best[:, -1], merge, [hidden, cluster, best, ids], [best, ids])

    def _draw_within(self, tail, hidden, drawn, ids, uniform):
        """`ids` (rows,) with a word of the tail wherever its column of the head was drawn."""
        first = self.boundaries[tail + 1]
        within = lambda rows, live, carry: ([first + draw(self._logits(rows[0], tail + 1), rows[1])], carry)  # noqa: E731
        return self._where(tail + 1, drawn, within, [hidden, uniform], [ids])[0]

    def _where(self, band, active, body, inputs, outputs):
        """`outputs` with those of `body` in the rows that are active: the rows that a band is computed for."""
        rows, columns = active.shape[0], self.tables[band].shape[0]
        chunk_rows = default_chunk_rows(rows and -(-rows // 2), columns)
        chunk_rows = min(rows, chunk_rows) if rows else chunk_rows
        copies = [ops.copy(output) for output in outputs]  # which torch writes into
        return over_active_rows(body, active, inputs, copies, [], chunk_rows)[0]

    def _terms(self, hidden, targets, training):
        """The arguments of one linear cross-entropy per band: (x, table, targets in it, class logits, chunk_rows)."""
        hidden = self._prepare(hidden)
        hidden = self._drop_input(ops.reshape(hidden, [-1, hidden.shape[-1]]), training=training)
        targets = ops.cast(targets, "int32")
        bounds = self.boundaries
        tail = sum(ops.cast(targets >= low, "int32") for low in bounds[1:-1]) if self.tails else 0
        head = ops.where(targets < bounds[1], targets, bounds[1] - 1 + tail)
        head = ops.where(targets < bounds[-1], head, -1)
        class_logits = self._class_logits(hidden) if self.tails else None
        yield self._project(hidden, 0), self.tables[0], head, class_logits, None
        rows = hidden.shape[0]
        for band in range(1, self.tails + 1):
            x = self._drop_tail(self._project(hidden, band), training=training)
            inside = (targets >= bounds[band]) & (targets < bounds[band + 1])
            chunk_rows = default_chunk_rows(None, self.tables[band].shape[0])
            if rows:
                chunk_rows = min(chunk_rows, -(-rows // TAIL_CHUNKS))
            yield x, self.tables[band], ops.where(inside, targets - bounds[band], -1), None, chunk_rows

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "cutoffs": self.cutoffs,
            "factor": self.factor,
            "tail_dropout": self.tail_dropout,
            "input_dropout": self.input_dropout,
            "tied_to": keras.saving.serialize_keras_object(self.tied_to) if self.tied_to is not None else None,
            "tie_projections": self.tie_projections,
        }

    @classmethod
    def from_config(cls, config):
        if isinstance(config.get("tied_to"), dict):
            config = {**config, "tied_to": keras.saving.deserialize_keras_object(config["tied_to"])}
        return cls(**config)


def _count_above(values, own, target):
    """How many of the `values` (rows, words) are above `own` (rows,), the one at `target` (rows,) left out."""
    others = ops.arange(values.shape[-1])[None, :] != target[:, None]
    return ops.sum(ops.cast((values > own[:, None]) & others, "int32"), axis=-1)
