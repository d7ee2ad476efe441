from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_adaptive.backend.sparse.gradients import take_rows
from keras_adaptive.layers.inputs.char_cnn import FILTERS, LOOKUP_ROWS, CharCNN
from keras_adaptive.layers.outputs.adaptive_softmax import AdaptiveSoftmax
from keras_adaptive.layers.outputs.banded_softmax import Band, BandedSoftmax
from keras_adaptive.layers.outputs.sampled_softmax import SAMPLING, sampled_loss
from keras_adaptive.layers.outputs.softmax import Softmax
from keras_adaptive.losses.sampled import ImportanceSampling, SampledLoss
from keras_adaptive.ops.active_rows import over_active_rows
from keras_adaptive.ops.chunks import default_chunk_rows
from keras_adaptive.typing import Shape, Tensor

CNN_ARGUMENTS = ("highways", "char_dim", "filters", "max_bytes", "word_markers")  # passed to `CharCNN`


@keras.saving.register_keras_serializable(package="keras_adaptive")
class CharCNNSoftmax(Softmax):
    """CNN softmax, whose word vectors are computed from the bytes of the words by a `CharCNN`.

    The logit of a word is hᵀ·e + hᵀ·M·c for a hidden state h, with the vector e of the character CNN and a learned
    correction c of a few dimensions, which distinguishes words of similar spelling.

    Training computes the vectors of targets and noise words only. Each exact method (`nll`, `log_probs`, `score`,
    `top_k`, `sample`) first computes the vectors of the whole vocabulary, 4,096 words at a time; `for_inference`
    computes them once. The learning rate must be much smaller than for a table, since all words share the weights.

    The corrections start from zeros, their projection M from Xavier uniform, and the character CNN as a `CharCNN` does.

    Args:
        words: List of all words in the order of their ids, by descending frequency. The first four are `<s>`, `<pad>`,
            `</s>` and `<unk>`.
        num_samples: Number of noise words per update, at most the number of words, for importance sampling with
            log-uniform noise; or a `losses.SampledLoss`, such as `NCE(8_192, counts=counts)`.
        correction_dim: Dimension of the corrections, 128 in the paper, 0 for none.
        highways, char_dim, filters, max_bytes, word_markers: As in `CharCNN`.
        **kwargs: `input_dropout`, as in `SampledSoftmax`, and the arguments of every Keras layer.

    Attributes:
        char_cnn: The `CharCNN`.
        corrections: The variable (vocabulary_size, correction_dim), or `None`.
        correction_projection: The variable M, transposed: (correction_dim, hidden_dim), or `None`.

    Call arguments:
        hidden, targets, weights: As in `Output`.

    Raises:
        ValueError: If an argument is invalid for `CharCNN` or a `SampledLoss`.

    Reference:
        Jozefowicz et al., Exploring the Limits of Language Modeling, 2016, sections 3.2 and 5.5.

    Example:

    >>> words = ["<s>", "<pad>", "</s>", "<unk>", "the", "cat", "dog"]
    >>> softmax = CharCNNSoftmax(words, 4, correction_dim=2, filters=(8, 8))
    >>> hidden = np.random.normal(size=(2, 8, 16)).astype("float32")
    >>> loss = softmax.training_loss(hidden, np.random.randint(2, 7, size=(2, 8)))
    >>> softmax.for_inference(["dogs"]).nll(hidden, np.full((2, 8), 7)).shape  # of a word outside the vocabulary
    (2, 8)
    """

    words: list[str]

    def __init__(
        self,
        words: Sequence[str],
        num_samples: int | SampledLoss,
        *,
        correction_dim: int = 0,
        highways: int = 1,
        char_dim: int = 128,
        filters: Sequence[int] = FILTERS,
        max_bytes: int = 50,
        word_markers: bool = False,
        **kwargs: Any,
    ) -> None:
        loss = num_samples if isinstance(num_samples, SampledLoss) else ImportanceSampling(num_samples)
        super().__init__(len(words), loss=loss, **kwargs)
        object.__setattr__(self, "words", list(words))  # Keras would track each of them, which takes seconds
        self.boundaries = (0, len(self.words))
        self.correction_dim = correction_dim
        self.char_cnn = CharCNN(
            self.words,
            None,  # the dimension of the hidden states, see `build`
            highways=highways,
            char_dim=char_dim,
            filters=filters,
            max_bytes=max_bytes,
            word_markers=word_markers,
            dtype=self.dtype_policy,
            name="char_cnn",
        )
        self.corrections = self.correction_projection = None

    @property
    def row_variables(self) -> Sequence[Tensor]:
        return [] if self.corrections is None else [self.corrections]

    def build(
        self, hidden_shape: Shape, targets_shape: Shape | None = None, weights_shape: Shape | None = None
    ) -> None:
        if self.built:
            return
        self._build_noise()
        dim = self.char_cnn.output_dim = hidden_shape[-1]
        self.char_cnn.build()
        if self.correction_dim:
            self.corrections = self.add_weight(
                shape=(self.vocabulary_size, self.correction_dim),
                initializer="zeros",
                name="corrections",
                autocast=False,
            )
            self.correction_projection = self.add_weight(
                shape=(self.correction_dim, dim),
                initializer="glorot_uniform",
                name="correction_projection",
                autocast=False,
            )
        self.built = True

    def for_inference(self, extra_words: Sequence[str] | None = None) -> AdaptiveSoftmax:
        """Returns a plain softmax over word vectors that are computed once, for evaluation and generation.

        Args:
            extra_words: List of words outside the vocabulary, which then have probability too. Their ids follow the
                vocabulary, and they have no correction.

        Returns:
            An `AdaptiveSoftmax` without tails.

        Raises:
            ValueError: If the layer is not built, so that the dimension of the hidden states is unknown.
        """
        if not self.built:
            raise ValueError("`for_inference` needs the dimension of the hidden states: call or build the layer first.")
        table = ops.convert_to_numpy(self.char_cnn.for_inference(extra_words).tables[0].value).copy()
        if self.correction_dim:
            corrections, projection = map(ops.convert_to_numpy, (self.corrections, self.correction_projection))
            table[: self.vocabulary_size] += corrections @ projection
        layer = AdaptiveSoftmax(
            len(table), (), input_dropout=self.input_dropout, dtype=self.dtype_policy, name=self.name
        )
        layer.build((None, table.shape[1]))
        layer.tables[0].assign(table)
        return layer

    def softmax(self) -> BandedSoftmax:
        return BandedSoftmax([Band(self._all_vectors(), None, lambda x: x)], self.boundaries, soft_cap=self._soft_cap)

    def vectors(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        vectors = self.char_cnn(ids)
        if self.correction_dim:
            corrections = self._cast(take_rows(self.corrections, ids))
            vectors = vectors + ops.matmul(corrections, self._cast(self.correction_projection))
        return vectors, None

    def _cast(self, weight):
        return ops.cast(weight, self.compute_dtype)

    def _all_vectors(self):
        """Returns the vectors of all words. Gradients exist if the vocabulary fits in one chunk."""
        ids = ops.arange(self.vocabulary_size, dtype="int32")
        if self.vocabulary_size <= LOOKUP_ROWS:
            return self.vectors(ids)[0]
        table = ops.zeros((self.vocabulary_size, self.char_cnn.output_dim), self.compute_dtype)
        body = lambda rows, live, carry: ([self.vectors(rows[0])[0]], carry)  # noqa: E731
        return over_active_rows(body, ids == ids, [ids], [table], [], LOOKUP_ROWS)[0][0]

    def logits_in_training(self, rows: int) -> int:
        return self.num_samples * default_chunk_rows(rows, self.num_samples, self.char_cnn.output_dim)

    def get_config(self) -> dict[str, Any]:
        own = {"words": self.words, "input_dropout": self.input_dropout, "correction_dim": self.correction_dim}
        cnn_config = {name: getattr(self.char_cnn, name) for name in CNN_ARGUMENTS}
        return {**super().get_config(), **own, **cnn_config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        own = {name: value for name, value in config.items() if name not in SAMPLING}
        if isinstance(config["loss"], str):  # in files of earlier versions
            return cls(**own, num_samples=sampled_loss(*(config[name] for name in SAMPLING)))
        return cls(**own, num_samples=keras.saving.deserialize_keras_object(config["loss"]))
