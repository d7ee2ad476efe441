import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_number_of_layers
from keras_adaptive.backend.compiled import compiled, constant
from keras_adaptive.backend.first_of_runs import first_of_runs
from keras_adaptive.layers.initializers import fan_in_uniform
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.inputs.word_embedding import WordEmbedding
from keras_adaptive.ops.chunks import chunk_sizes
from keras_adaptive.ops.map_rows import map_rows
from keras_adaptive.ops.word_bytes import (
    BEGIN,
    END,
    Convolutions,
    Highways,
    beginnings,
    encode_words,
    with_markers,
    zero_padded,
)
from keras_adaptive.special_words import BOS, EOS, SPECIAL_WORDS, UNK
from keras_adaptive.typing import Shape, Tensor

FILTERS = (128, 256, 384, 512, 512, 512, 512)  # numbers of filters of widths 1, 2, …
SLOTS = (5, 8, 12, 20)  # Words are grouped by these lengths; a convolution is compiled for each.
LOOKUP_ROWS = 4096  # Number of words per chunk of a lookup table.


@keras.saving.register_keras_serializable(package="keras_adaptive")
class CharCNN(Input):
    """Character CNN that computes word vectors from the bytes of the words.

    The bytes pass through convolutions, a maximum over time, highway layers and a projection. A word is computed once
    per batch, however often it occurs, at a cost that grows with its length. `</s>` and `<unk>` have learned vectors,
    `<pad>` is zeros, and `<s>` is a word without bytes.

    The character table and the highway layers start from Xavier normal with gate biases of 1, the convolutions from
    U(±1/√fan_in), and the projection from Xavier uniform.

    Args:
        words: List of all words in the order of their ids. The first four are `<s>`, `<pad>`, `</s>` and `<unk>`.
        output_dim: Dimension of the vectors.
        highways: Number of highway layers.
        char_dim: Dimension of the vectors of bytes.
        filters: Numbers of filters of the widths 1, 2, …; 0 omits a width.
        max_bytes: Maximum number of bytes of a word, at least the number of widths. Longer words are cut. Markers do
            not count.
        zero_padding: Whether padding, which fills a word up to `max_bytes`, is a vector of zeros. Otherwise it is the
            first row of `table`, which gets no gradient. Keep the default for new models. Checkpoints of fairseq need
            False, because their first row has random values, which the convolutions see.
        word_markers: Whether the convolutions see a marker before the first byte of a word and another one after the
            last byte.

    Attributes:
        table: Variable (257, char_dim), or (259, char_dim) with markers. Row 0 is the vector of padding, row b + 1 the
            vector of byte b, and the last two rows are the markers of the beginning and the end.

    Call arguments:
        ids: As in `Input`.

    Raises:
        ValueError: If a word is empty, the first four words are not the special ones, `filters` is invalid, or
            `max_bytes` is below the number of widths.

    Reference:
        Kim et al., Character-Aware Neural Language Models, AAAI 2016; Baevski and Auli, Adaptive Input Representations
        for Neural Language Modeling, ICLR 2019, section 4.1 (CNN). The CNN of Jozefowicz et al., Exploring the Limits
        of Language Modeling, 2016, section 4.3, with 4,096 features and 72M weights, is `CharCNN(words, 1024,
        highways=2, char_dim=16, filters=(32, 32, 64, 128, 256, 512, 1024, 2048), word_markers=True)`.

    Example:

    >>> words = ["<s>", "<pad>", "</s>", "<unk>", "the", "cat"]
    >>> layer = CharCNN(words, 64)
    >>> layer(np.array([[4, 5, 2]])).shape
    (1, 3, 64)
    >>> layer.vectors(["incerdible"]).shape
    (1, 64)
    >>> len(layer.neighbors("incerdible", k=2))  # pairs of a word and its cosine
    2
    """

    words: list[str]

    def __init__(
        self,
        words: Sequence[str],
        output_dim: int | None,
        *,
        highways: int = 1,
        char_dim: int = 128,
        filters: Sequence[int] = FILTERS,
        max_bytes: int = 50,
        zero_padding: bool = True,
        word_markers: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        object.__setattr__(self, "words", list(words))  # Keras would track each of them, which takes seconds
        self.vocabulary_size = len(self.words)
        self.boundaries = (0, self.vocabulary_size)
        self.output_dim = output_dim
        check_number_of_layers(highways, "highways", most=100)
        self.highways = highways
        self.char_dim = char_dim
        self.filters = tuple(filters)
        self.max_bytes = max_bytes
        self.zero_padding = zero_padding
        self.word_markers = word_markers
        if tuple(self.words[:4]) != SPECIAL_WORDS:
            raise ValueError(f"`words` must begin with {list(SPECIAL_WORDS)}. Received: words={self.words[:4]}.")
        if not any(self.filters) or min(self.filters) < 0:
            raise ValueError(
                "`filters` must be numbers of filters, at least one of them above 0 and none below. "
                f"Received: filters={self.filters}."
            )
        if max_bytes < len(self.filters):
            raise ValueError(
                f"`max_bytes` must be at least {len(self.filters)}, the width of the widest filters. "
                f"Received: max_bytes={max_bytes}."
            )
        self._lookup: Callable[[Tensor], Tensor] | None = None  # the compiled call of `for_inference`
        self._spell: Callable[[Tensor, Tensor], Tensor] | None = None  # the compiled function of `vectors`
        self.characters = np.zeros((self.vocabulary_size, max_bytes), np.int16)
        self.characters[4:] = encode_words(self.words[4:], max_bytes)

    def build(self, input_shape: Shape | None = None) -> None:
        if self.built:
            return
        width = sum(self.filters)
        self._characters = constant(self.characters)
        # Rows are gathered before they are cast, so that gradients of frequent bytes are summed in float32.
        symbols = END + 1 if self.word_markers else BEGIN
        self.table = self._weight((symbols, self.char_dim), "glorot_normal", "table", autocast=False)
        self.symbols = self._weight((2, self.output_dim), "glorot_normal", "symbols", autocast=False)
        sizes = [(i + 1, self.char_dim, filters) for i, filters in enumerate(self.filters)]
        starts = [fan_in_uniform(size[0] * size[1]) for size in sizes]
        self.kernels = [self._weight(s, u, f"kernel_{s[0]}") for s, u in zip(sizes, starts)]
        self.biases = [self._weight(s[2:], u.clone(), f"bias_{s[0]}") for s, u in zip(sizes, starts)]
        self.highway_kernels, self.highway_biases = [], []
        for i in range(self.highways):
            self.highway_kernels.append(self._weight((width, 2 * width), "glorot_normal", f"highway_kernel_{i}"))
            self.highway_biases.append(self._weight((2 * width,), _open_gates, f"highway_bias_{i}"))
        self.projection = self._weight((width, self.output_dim), "glorot_uniform", "projection")
        self.projection_bias = self._weight((self.output_dim,), "zeros", "projection_bias")
        self.built = True

    def _weight(self, shape, initializer, name, **kwargs):
        return self.add_weight(shape=shape, initializer=initializer, name=name, **kwargs)

    def call(self, ids: Tensor) -> Tensor:
        flat = ops.copy(ops.reshape(ids, [-1]))  # torch warns of a search for the ids of a column
        in_order = ops.sort(flat)
        inside = first_of_runs(in_order) & (in_order >= 0)
        characters = ops.take(self._characters, ops.where(inside, in_order, 0), axis=0)
        vectors = self.embed_bytes(ops.cast(characters, "int32"), in_order, inside)
        vectors = ops.take(vectors, ops.searchsorted(in_order, flat), axis=0)
        return ops.reshape(ops.cast(vectors, self.compute_dtype), (*ops.shape(ids), self.output_dim))

    def embed_bytes(self, characters: Tensor, ids: Tensor, active: Tensor) -> Tensor:
        """Computes the vectors of words from their bytes as `Input` describes, and those of symbols from their ids.

        A word outside the vocabulary has any id of at least `vocabulary_size`. Symbols need not be active.
        """
        vectors = self._compute(characters, active & ((ids == BOS) | (ids > UNK)))
        for place, id in enumerate((EOS, UNK)):
            vectors = ops.where((ids == id)[:, None], self.symbols[place], vectors)
        return vectors

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """Returns the vectors of any words, in the vocabulary or not.

        Args:
            words: List of words.

        Returns:
            A NumPy array (words, output_dim), float32.
        """
        self.build()
        if not words:
            return np.zeros((0, self.output_dim), "float32")
        if self._spell is None:
            compute = lambda x, count: self._compute(x, ops.arange(ops.shape(x)[0]) < count)  # noqa: E731
            self._spell = functools.partial(compiled(compute, self.variables))
        rows = 1 << (len(words) - 1).bit_length()  # compilers compile for each number
        characters = np.pad(encode_words(words, self.max_bytes).astype("int32"), [[0, rows - len(words)], [0, 0]])
        count = ops.convert_to_tensor(len(words), "int32")
        return ops.convert_to_numpy(self._spell(ops.convert_to_tensor(characters), count))[: len(words)]

    def for_inference(self, extra_words: Sequence[str] | None = None) -> WordEmbedding:
        """Returns a `WordEmbedding` of word vectors that are computed once, for evaluation and generation.

        Args:
            extra_words: List of words outside the vocabulary, whose ids follow it.

        Returns:
            A `WordEmbedding`.
        """
        self.build()
        if self._lookup is None:
            self._lookup = functools.partial(compiled(self, self.variables))  # TensorFlow does not track a partial
        starts = range(0, self.vocabulary_size, LOOKUP_ROWS)
        ids = [np.arange(start, start + LOOKUP_ROWS, dtype="int32") for start in starts]
        parts = [ops.convert_to_numpy(self._lookup(ops.convert_to_tensor(part))) for part in ids]
        table = np.concatenate([np.concatenate(parts)[: self.vocabulary_size], self.vectors(extra_words or ())])
        layer = WordEmbedding(len(table), self.output_dim, dtype=self.dtype_policy, name=self.name)
        layer.build()
        layer.tables[0].assign(table)
        return layer

    def neighbors(self, words: str | Iterable[str], k: int = 10, table: Tensor | None = None) -> list:
        """Returns the words of the vocabulary that are nearest to any strings by cosine.

        Args:
            words: A string, or a list of strings.
            k: Number of words for each string.
            table: NumPy array (vocabulary_size, output_dim) of the vectors of the vocabulary, the table of
                `for_inference()`. Computed by default.

        Returns:
            A list of k pairs `(word, cosine)`, the nearest first, or a list of such lists.

        Reference:
            Jozefowicz et al., Exploring the Limits of Language Modeling, 2016, table 4.
        """
        if isinstance(words, str):
            return self.neighbors([words], k, table)[0]
        if table is None:
            table = ops.convert_to_numpy(self.for_inference().tables[0].value)
        words, known = list(words), table[4:]
        vectors = self.vectors(words)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        norms = np.linalg.norm(known, axis=1)
        return [self._nearest(word, known @ vector / norms, k) for word, vector in zip(words, vectors)]

    def _nearest(self, word, cosines, k):
        order = np.argsort(-cosines, kind="stable")
        words = ((self.words[4 + place], float(cosines[place])) for place in order)
        return list(itertools.islice((pair for pair in words if pair[0] != word), k))

    def _compute(self, characters, active):
        """Maps bytes (rows, max_bytes) to vectors (rows, output_dim), float32; rows that are not active give 0."""
        width = sum(self.filters)
        characters = with_markers(characters) if self.word_markers else characters
        lengths = ops.sum(ops.cast(characters > 0, "int32"), axis=-1)
        cases, low, sizes = [], -1, chunk_sizes()
        for slots in self._slots(characters.shape[-1]):
            function, inside = Convolutions(slots, characters.shape[-1]), (lengths > low) & (lengths <= slots)
            cases.append((function, active & inside, sizes.convolved_words))
            low = slots
        table, biases = ops.convert_to_tensor(self.table), self.biases
        if not self.zero_padding:
            table, biases = zero_padded(table, self.kernels, biases)
        kernels = self._cast(self.kernels)
        weights = [*kernels, *beginnings(kernels), *self._cast(biases)]
        features = map_rows(cases, [characters], [table, *weights], width, saved=[(width, "int32")])
        features = ops.cast(features, self.compute_dtype)
        weights = [*self.highway_kernels, *self.highway_biases, self.projection, self.projection_bias]
        cases, saved = [(Highways(), active, sizes.highway_words)], [(2 * width, self.compute_dtype)] * self.highways
        return map_rows(cases, [features], self._cast(weights), self.output_dim, saved=saved)

    def _slots(self, most):
        """Returns the lengths by which words are grouped; eager torch on a CPU can afford a group for each length."""
        markers = 2 if self.word_markers else 0
        shorter = most - len(self.filters)
        if keras.config.backend() == "torch" and self.table.value.device.type == "cpu":
            return [*range(1, shorter + 1), most]
        return [*(slots + markers for slots in SLOTS if slots + markers <= shorter), most]

    def _cast(self, weights):
        return [ops.cast(weight, self.compute_dtype) for weight in weights]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "words": self.words,
            "output_dim": self.output_dim,
            "highways": self.highways,
            "char_dim": self.char_dim,
            "filters": self.filters,
            "max_bytes": self.max_bytes,
            "zero_padding": self.zero_padding,
            "word_markers": self.word_markers,
        }


def _open_gates(shape, dtype=None):
    """Returns biases of 0 for the values of a highway layer and of 1 for its gates, which then carry the input."""
    return ops.concatenate([ops.zeros(shape[0] // 2, dtype), ops.ones(shape[0] // 2, dtype)])
