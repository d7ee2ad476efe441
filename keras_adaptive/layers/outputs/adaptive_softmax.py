import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.products import matmul
from keras_adaptive.backend.sparse.gradients import take_rows
from keras_adaptive.layers.inputs.adaptive_embedding import AdaptiveEmbedding
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.banded_softmax import Band, BandedSoftmax
from keras_adaptive.layers.outputs.softmax import Softmax
from keras_adaptive.layers.outputs.tied_output import TiedOutput
from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.ops.bands import band_boundaries, band_dimensions, cutoff_tuple
from keras_adaptive.ops.chunks import default_chunk_rows
from keras_adaptive.ops.quantized_matrix import floats
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AdaptiveSoftmax(Quantizable, TiedOutput, Softmax):
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
        tie_projections: Whether the tails use the transposed projections of an `AdaptiveEmbedding` too. A sequence of a
            bool per band is the form of Transformer-XL: the head has a projection as well, its own or the tied one, and
            the columns of the tails read the projected hidden states.
        use_bias: Whether every word and every tail has a bias.
        loss: What training minimizes, by default the cross-entropy: a `losses.RowLoss`, such as `CrossEntropy` with
            label smoothing, or, for a softmax without tails, a `losses.SampledLoss`. Optional.

    Attributes:
        tables: One variable (size_i, dim_i) per band, its own or the tied ones; without reduction a list of one
            variable (vocabulary_size, hidden_dim).
        projections: One variable (hidden_dim, dim_i) per band, or `None` where the projection is tied or missing. The
            head has one only if its dimension differs from `hidden_dim`, or `tie_projections` is a sequence.
        class_table: The variable (number of tails, hidden_dim) of the head's columns for the tails, never tied. In the
            form of Transformer-XL its vectors have the dimension of the head.
        bias, class_bias: The variables (vocabulary_size,) and (number of tails,), or `None`.

    Call arguments:
        hidden, targets, weights: As in `Output`.

    Raises:
        ValueError: If `cutoffs` do not increase or leave the vocabulary, `tied_to` has another vocabulary or other
            cutoffs, a tail would have dimension 0, or the dimension of tied projections or of a table that is tied
            without reduction is not `hidden_dim`. If `tie_projections` is a sequence of another length, or for bands
            without projections. If a loss on noise words is given for a softmax with tails.

    Reference:
        Grave et al., Efficient softmax approximation for GPUs, ICML 2017; Baevski and Auli, Adaptive Input
        Representations for Neural Language Modeling, ICLR 2019, section 3.1 (tied words and projections); Merity et
        al., An Analysis of Neural Language Modeling at Multiple Scales, 2018, section 3.3 (no reduction; the published
        code has the columns of the tails in reverse order); Dai et al., Transformer-XL, ACL 2019 (its published code,
        for a projection of the head).

    Example:

    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(1_000, 4_000))
    >>> hidden = np.random.normal(size=(2, 8, 64)).astype("float32")
    >>> targets = np.random.randint(0, 10_000, size=(2, 8))
    >>> softmax.nll(hidden, targets).shape
    (2, 8)
    >>> log_probs, ids = softmax.top_k(hidden, 5)  # (2, 8, 5) each
    """

    matrices = ("_own_tables", "projections", "class_table")

    def __init__(
        self,
        vocabulary_size: int,
        cutoffs: Sequence[int],
        *,
        factor: int | None = 4,
        tail_dropout: float = 0.0,
        input_dropout: float = 0.0,
        tied_to: Input | None = None,
        tie_projections: bool | Sequence[bool] = True,
        use_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        dropout = {"tail_dropout": tail_dropout, "input_dropout": input_dropout}
        super().__init__(vocabulary_size=vocabulary_size, tied_to=tied_to, **dropout, **kwargs)
        self.cutoffs = cutoff_tuple(cutoffs)
        self.factor = factor
        self.tie_projections = tuple(tie_projections) if isinstance(tie_projections, (list, tuple)) else tie_projections
        self.use_bias = use_bias
        self.boundaries = band_boundaries(vocabulary_size, self.cutoffs)
        if tied_to is not None and tied_to.boundaries not in (self.boundaries, (0, vocabulary_size)):
            raise ValueError(
                "`tied_to` must be an embedding with the same vocabulary and cutoffs, or a `WordEmbedding`. "
                f"Received: boundaries {tied_to.boundaries}, expected {self.boundaries}."
            )
        if self.num_samples and self.tails:
            raise ValueError(
                "A `loss` on noise words needs a softmax without tails: pass cutoffs=(). "
                f"Received: cutoffs={self.cutoffs}, loss={type(self.loss).__name__}."
            )
        self._check_projections()
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
    def row_variables(self) -> Sequence[Tensor]:
        """The table and the bias, if training compares targets with noise words."""
        return [*self.tables, *([] if self.bias is None else [self.bias])] if self.num_samples else []

    @property
    def _reduces(self):
        """Whether every band has a table of its own. Otherwise the bands are slices of one table."""
        return self.factor is not None if self.tied_to is None else self.tied_to.boundaries == self.boundaries

    def build(
        self, hidden_shape: Shape, targets_shape: Shape | None = None, weights_shape: Shape | None = None
    ) -> None:
        if self.built:
            return
        self._build_noise()
        hidden_dim = hidden_shape[-1]
        self._build_tables(hidden_dim)
        head_dim = self.tables[0].shape[1]
        for band, tied in enumerate(self._tied_projections):
            dim = self.tables[band if self._reduces else 0].shape[1]
            projects = not tied and (self._reduces if band else self._projects_head or head_dim != hidden_dim)
            self.projections.append(self._matrix((hidden_dim, dim), f"projection_{band}") if projects else None)
        if self.tails:
            class_dim = head_dim if self._projects_head else hidden_dim
            self.class_table = self._matrix((self.tails, class_dim), "class_table")
        if self.use_bias:
            self.bias = self._vector(self.vocabulary_size, "bias", self._noise_initializer())
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
            sizes = [high - low for low, high in zip(self.boundaries, self.boundaries[1:])]
            dimensions = band_dimensions(hidden_dim, self.factor, self.tails + 1)
        for band, (size, dim) in enumerate(zip(sizes, dimensions)):
            normal = keras.initializers.RandomNormal(stddev=dim**-0.5)
            self._own_tables.append(self.add_matrix((size, dim), normal, f"table_{band}", autocast=False))

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
        if any(self._tied_projections) and self.tied_to.output_dim != hidden_dim:
            raise ValueError(
                "`tie_projections` needs hidden states of the embedding's `output_dim`, "
                f"{self.tied_to.output_dim}: pass tie_projections=False. {received}"
            )

    def _check_projections(self):
        if not self._projects_head:
            return
        received = f"Received: tie_projections={self.tie_projections}, tied_to={type(self.tied_to).__name__}."
        if len(self.tie_projections) != self.tails + 1:
            raise ValueError(f"`tie_projections` must have a bool per band, {self.tails + 1} in all. {received}")
        if not self._reduces:
            raise ValueError(f"A sequence of `tie_projections` needs bands with tables of their own. {received}")
        if any(self.tie_projections) and not isinstance(self.tied_to, AdaptiveEmbedding):
            raise ValueError(f"Only projections of an `AdaptiveEmbedding` can be tied. {received}")

    @property
    def _projects_head(self):
        """Whether head and columns of the tails read hidden states that a matrix projects, as in Transformer-XL."""
        return isinstance(self.tie_projections, tuple)

    @property
    def _tied_projections(self):
        """Whether the projection of each band is the transposed one of the embedding: a tuple of bools."""
        if self._projects_head:
            return self.tie_projections
        ties = self.tied_to is not None and self.tie_projections and self._reduces
        return (False, *[ties] * self.tails)

    def _matrix(self, shape, name):
        return self.add_matrix(shape, "glorot_uniform", name, autocast=False)

    def _vector(self, size, name, initializer="zeros"):
        return self.add_weight(shape=(size,), initializer=initializer, name=name, autocast=False)

    def softmax(self) -> BandedSoftmax:
        tables, bias, whole = self.tables, self.bias, None
        biases = [None] * len(self.boundaries) if bias is None else self._slices(ops.cast(bias, "float32"))
        if self.tails and not self._reduces:  # the bands are slices of one table
            table = ops.convert_to_tensor(tables[0]) if self.quantization_mode is None else tables[0]
            whole = table, None if bias is None else ops.cast(bias, "float32")
            tables = self._slices(whole[0])
        bands = [
            Band(table, bias, functools.partial(self._project, band=number))
            for number, (table, bias) in enumerate(zip(tables, biases))
        ]
        return BandedSoftmax(bands, self.boundaries, self._class_logits, whole=whole, soft_cap=self._soft_cap)

    def vectors(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        vectors = take_rows(self.tables[0], ids)
        return vectors, None if self.bias is None else take_rows(self.bias, ids)

    def _slices(self, tensor):
        return [tensor[low:high] for low, high in zip(self.boundaries, self.boundaries[1:])]

    def _cast(self, weight):
        return ops.cast(floats(weight), self.compute_dtype)

    def _project(self, x, band):
        """Projects (…, hidden_dim) to (…, dim_i) by the band's matrix or the transposed tied one, if there is any."""
        if self.projections[band] is not None:
            return matmul(x, self._cast(self.projections[band]))
        if not self._tied_projections[band]:
            return x
        return matmul(x, ops.transpose(self._cast(self.tied_to.projections[band])))

    def _class_logits(self, x):
        """Returns the logits of the tails in the head: (…, number of tails) float32."""
        x = self._project(x, 0) if self._projects_head else x
        logits = ops.cast(matmul(x, ops.transpose(self._cast(self.class_table))), "float32")
        return logits if self.class_bias is None else logits + ops.cast(self.class_bias, "float32")

    def logits_in_training(self, rows: int) -> int:
        """Returns the number of logits in the largest chunk of any band, or of the noise words."""
        if self.num_samples:
            return self.num_samples * default_chunk_rows(rows, self.num_samples, self.tables[0].shape[1])
        sizes = [high - low for low, high in zip(self.boundaries, self.boundaries[1:])]
        dims = [table.shape[1] for table in self.tables] * len(sizes)  # one for all bands, or one for each
        return max(size * default_chunk_rows(rows, size, dim) for size, dim in zip(sizes, dims))

    def get_config(self) -> dict[str, Any]:
        bands = {"vocabulary_size": self.vocabulary_size, "cutoffs": self.cutoffs, "factor": self.factor}
        dropout = {"tail_dropout": self.tail_dropout, "input_dropout": self.input_dropout}
        weights = {"tie_projections": self.tie_projections, "use_bias": self.use_bias}
        return {**super().get_config(), **bands, **dropout, **weights}
