import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_adaptive.backend.compiled import constant
from keras_adaptive.layers.initializers import fan_in_uniform, open_forget_gates
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.ops.chunks import chunk_sizes
from keras_adaptive.ops.map_rows import map_rows
from keras_adaptive.ops.spelling import BYTES, SYMBOLS, prefix_tree, spell, spelling_nll, vocabulary_log_probs
from keras_adaptive.special_words import SPECIAL_WORDS
from keras_adaptive.typing import Shape, Tensor

SLOTS = (3, 5, 8, 12)  # Words are sorted by these numbers of symbols; a loop is compiled for each.


@keras.saving.register_keras_serializable(package="keras_adaptive")
class CharLSTMSoftmax(Output):
    """Output layer that spells the next word: an LSTM predicts its bytes from the hidden state.

    Every step reads the hidden state and the vector of the previous byte, and predicts the next byte or the end of the
    word. `</s>`, `<unk>` and the other special words are separate symbols. The number of weights does not depend on the
    vocabulary, and a training step computes the targets only.

    The probability of a word is the product over its symbols. Strings outside the vocabulary have probability too, so
    that the probabilities of the words add up to less than 1. `log_normalizer` returns the logarithm of that sum, and
    `normalized=True` divides all probabilities by it. `sample` always draws words of the vocabulary.

    `nll` runs the LSTM over the targets only. `log_normalizer`, `log_probs`, `score`, `top_k`, `alternatives`, `sample`
    and normalized probabilities take one step of the LSTM for each prefix of the vocabulary and each hidden state. They
    are exact but expensive: a vocabulary of about ten thousand words is feasible.

    The vectors of bytes start from Xavier normal, the LSTM from U(±1/√units) with biases of 1 for the forget gates and
    0 elsewhere, and the logits from Xavier uniform with biases of 0.

    Args:
        words: List of all words in the order of their ids. The first four are `<s>`, `<pad>`, `</s>` and `<unk>`.
        units: Number of cells of the LSTM.
        char_dim: Dimension of the vectors of bytes.
        max_bytes: Maximum number of bytes of a word.
        normalized: Whether to divide the probabilities by the total probability of the vocabulary. The attribute can be
            set after training, for evaluation.

    Attributes:
        table: Variable (257, char_dim). Row 0 is the vector of the beginning of a word, row b + 1 the vector of byte b.

    Call arguments:
        hidden, targets, weights: As in `Output`.

    Raises:
        ValueError: If a word is empty or has more than `max_bytes` bytes, or the first four words are not the special
            ones.

    Reference:
        Jozefowicz et al., Exploring the Limits of Language Modeling, 2016, section 3.3, where the other parts of the
        model are frozen.

    Example:

    >>> softmax = CharLSTMSoftmax(["<s>", "<pad>", "</s>", "<unk>", "the", "cat"], units=16)
    >>> hidden = np.random.normal(size=(2, 8, 32)).astype("float32")
    >>> softmax.nll(hidden, np.random.randint(2, 6, size=(2, 8))).shape
    (2, 8)
    >>> softmax.log_normalizer(hidden).shape
    (2, 8)
    """

    words: list[str]

    def __init__(
        self,
        words: Sequence[str],
        *,
        units: int = 1024,
        char_dim: int = 128,
        max_bytes: int = 50,
        normalized: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        object.__setattr__(self, "words", list(words))  # Keras would track each of them, which takes seconds
        self.vocabulary_size = len(self.words)
        self.boundaries = (0, self.vocabulary_size)
        self.units = units
        self.char_dim = char_dim
        self.max_bytes = max_bytes
        self.normalized = normalized
        if tuple(self.words[:4]) != SPECIAL_WORDS:
            raise ValueError(f"`words` must begin with {list(SPECIAL_WORDS)}. Received: words={self.words[:4]}.")
        self.symbols = spell(self.words, max_bytes)
        self._tree = prefix_tree(self.symbols)

    def build(
        self, hidden_shape: Shape, targets_shape: Shape | None = None, weights_shape: Shape | None = None
    ) -> None:
        if self.built:
            return
        uniform, gates = fan_in_uniform(self.units), 4 * self.units
        self._symbols = constant(self.symbols)
        # Rows are gathered before they are cast, so that gradients of frequent bytes are summed in float32.
        self.table = self.add_weight(
            shape=(BYTES + 1, self.char_dim), initializer="glorot_normal", name="table", autocast=False
        )
        self.kernel = self._weight((hidden_shape[-1] + self.char_dim, gates), uniform, "kernel")
        self.recurrent_kernel = self._weight((self.units, gates), uniform.clone(), "recurrent_kernel")
        self.gate_bias = self._weight((gates,), open_forget_gates, "gate_bias")
        self.logits_kernel = self._weight((self.units, SYMBOLS), "glorot_uniform", "logits_kernel")
        self.logits_bias = self._weight((SYMBOLS,), "zeros", "logits_bias")
        self.built = True

    def _weight(self, shape, initializer, name):
        return self.add_weight(shape=shape, initializer=initializer, name=name)

    def _weights(self):
        """Returns the weights in the order of the arguments of `ops.spelling`."""
        weights = [self.kernel, self.recurrent_kernel, self.gate_bias, self.logits_kernel, self.logits_bias]
        return [ops.convert_to_tensor(self.table), *(ops.cast(weight, self.compute_dtype) for weight in weights)]

    def log_normalizer(self, hidden: Tensor) -> Tensor:
        """Returns the logarithm of the total probability of the vocabulary.

        Args:
            hidden: (…, hidden_dim).

        Returns:
            (…) float32, in nats.
        """
        return ops.reshape(self._log_total(self._rows(hidden)), ops.shape(hidden)[:-1])

    def compute_total_nll(self, x: Tensor, targets: Tensor, weights: Tensor, training: bool | None) -> Tensor:
        weights = ops.cast(weights, "float32")
        return ops.sum(weights * self._nll(x, targets, weights != 0))

    def compute_nll(self, x: Tensor, targets: Tensor) -> Tensor:
        return self._nll(x, targets, True)

    def _nll(self, x, targets, active):
        """Returns −log p(target) of the active rows, computed for targets of similar length together."""
        known = (targets >= 0) & (targets < self.vocabulary_size) & active
        symbols = ops.cast(ops.take(self._symbols, ops.where(known, targets, 0), axis=0), "int32")
        lengths, cases, low = ops.sum(ops.cast(symbols > 0, "int32"), axis=-1), [], 0
        longest, rows = self.symbols.shape[1], chunk_sizes().spelled_words
        for slots in [*(slots for slots in SLOTS if slots < longest), longest]:
            function = functools.partial(spelling_nll, slots=slots)
            cases.append((function, known & (lengths > low) & (lengths <= slots), rows))
            low = slots
        nll = map_rows(cases, [x, symbols], self._weights(), 1)[:, 0]
        return ops.where(known, nll + self._log_total(x), 0.0) if self.normalized else nll

    def _log_total(self, x):
        return self._of_vocabulary(functools.partial(_log_total, tree=self._tree), x, 1)[:, 0]

    def compute_log_probs(self, x: Tensor) -> Tensor:
        function = functools.partial(vocabulary_log_probs, tree=self._tree)
        log_probs = self._of_vocabulary(function, ops.reshape(x, (-1, x.shape[-1])), self.vocabulary_size)
        log_probs = ops.reshape(log_probs, (*ops.shape(x)[:-1], self.vocabulary_size))
        return ops.log_softmax(log_probs) if self.normalized else log_probs

    def _of_vocabulary(self, function, x, width):
        """Applies `function` to chunks of rows; the gates of a chunk's widest step take `tree_bytes`."""
        widest = max(1, *(len(level.branches) for level in self._tree[0]))
        rows = max(1, chunk_sizes().tree_bytes // (4 * 4 * self.units * widest))
        rows = min(rows, x.shape[0] or rows, chunk_sizes().tree_rows)
        active = ops.ones(ops.shape(x)[:1], "bool")
        return map_rows([(function, active, rows)], [x], self._weights(), width, in_chunks=True)

    def logits_in_training(self, rows: int) -> int:
        """Returns the number of logits for all symbols of a chunk of the longest words."""
        return min(rows, chunk_sizes().spelled_words) * self.symbols.shape[1] * SYMBOLS

    def get_config(self) -> dict[str, Any]:
        of_bytes = {"char_dim": self.char_dim, "max_bytes": self.max_bytes, "normalized": self.normalized}
        return {**super().get_config(), "words": self.words, "units": self.units, **of_bytes}


def _log_total(x, *weights, tree):
    return ops.logsumexp(vocabulary_log_probs(x, *weights, tree=tree), axis=-1, keepdims=True)
