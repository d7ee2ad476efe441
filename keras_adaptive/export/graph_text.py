from collections.abc import Callable

from keras_adaptive.data.codecs.subwords import Subwords
from keras_adaptive.data.codecs.units import unit_of
from keras_adaptive.data.codecs.vocabulary import Vocabulary
from keras_adaptive.export.graph_subwords import GraphSubwords
from keras_adaptive.export.graph_words import graph_words
from keras_adaptive.special_words import EOS
from keras_adaptive.typing import Tensor


class GraphText:
    """Converts text to tokens and back inside a TensorFlow graph, in the same way as in training.

    The exported object must track its `tables`.

    Args:
        vocabulary: The `Vocabulary` of a corpus.
        tokenizer: Name of the tokenizer of the corpus, in `TOKENIZERS`.
        subwords: The `Subwords` of the corpus; None for a corpus of words.

    Raises:
        ValueError: If the vocabulary lacks pieces of the sub-words.

    Example:

    >>> text = GraphText(Vocabulary.from_counts({"the": 9, "cat": 2}), "whitespace")
    >>> tokens, ids = text.encode(tf.constant(["the cat", "", "the dog"]))
    >>> ids.to_list()  # -1 is a word outside the vocabulary
    [[4, 5], [], [4, -1]]
    """

    def __init__(self, vocabulary: Vocabulary, tokenizer: str = "whitespace", subwords: Subwords | None = None) -> None:
        import tensorflow as tf

        self.tokenizer = tokenizer
        self.tables = tf.Module()
        self._tokens = tf.constant(vocabulary.words)
        self._subwords, self._begins = None, None
        self._unit = unit_of(tokenizer, subwords is not None)
        if subwords is None:
            ids = tf.constant(vocabulary.encode(vocabulary.words), tf.int64)  # a published vocabulary may repeat words
            self.tables.ids = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(self._tokens, ids), -1)
        else:
            self._subwords = GraphSubwords(subwords, vocabulary)
            self.tables.subwords = self._subwords.tables
            self._begins = tf.constant(list(map(self._unit.begins_word, vocabulary.words)))
        texts = list(map(self._unit.text, vocabulary.words))
        texts[EOS] = b"\n"
        self._texts = tf.constant(texts)
        self._longest = max(map(len, texts))

    def encode(self, texts: Tensor, check: Callable[[Tensor, Tensor], Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Splits texts into tokens, with `</s>` for each line break (`split_lines`), as `TextCodec.tokenize` does.

        Args:
            texts: String tensor (texts,).
            check: Function `(words, fewest)` that returns `words`, or raises an error before they are cut into pieces.
                `fewest` (texts,) is a lower bound of the number of tokens of each text. Optional.

        Returns:
            `(tokens, ids)`, two `tf.RaggedTensor` (texts, tokens) of strings and of int32. The id of an unknown word is
            −1.
        """
        import tensorflow as tf

        lines = tf.strings.split(texts, "\n")  # (texts, lines)
        words = graph_words(tf.strings.regex_replace(lines.flat_values, r"\r+\z", ""), self.tokenizer)
        breaks = 1 - tf.scatter_nd(lines.row_starts()[:, None], tf.ones_like(lines.row_starts()), [words.nrows()])
        breaks = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(breaks)], "</s>"), breaks, validate=False)
        words = lines.with_values(tf.concat([breaks, words], axis=1)).merge_dims(1, 2)
        if check:
            words = check(words, self._fewest(words))
        if self._subwords is None:
            return words, tf.cast(self.tables.ids.lookup(words), tf.int32)
        ids = words.with_values(self._subwords(words.flat_values)).merge_dims(1, 2)
        return self.tokens(ids), ids

    def _fewest(self, words):
        """Returns a lower bound of the number of tokens of each text, int64 (texts,). It is exact for words."""
        import tensorflow as tf

        if self._subwords is None:
            return words.row_lengths()
        pieces = 1 + tf.strings.length(words.flat_values) // self._longest  # a space is part of each word
        return tf.reduce_sum(words.with_values(tf.cast(pieces, tf.int64)), axis=1)

    def tokens(self, ids: Tensor) -> Tensor:
        """Returns the tokens of ids, in the shape of the ids."""
        import tensorflow as tf

        return tf.gather(self._tokens, ids)

    def begins_word(self, ids: Tensor) -> Tensor:
        """Returns whether a word begins with each token, a boolean tensor in the shape of the ids."""
        import tensorflow as tf

        return tf.ones_like(ids, tf.bool) if self._begins is None else tf.gather(self._begins, ids)

    def detokenize(self, ids: Tensor, begins_line: Tensor | bool = False) -> Tensor:
        """Returns the texts (lines,) of ids (lines, tokens), with a space before each word and a line break for `</s>`.

        The first word of a line has no space before it; `begins_line` (lines,) is whether the ids begin a line. Bytes
        that are not UTF-8, which pieces may produce, become U+FFFD.
        """
        import tensorflow as tf

        text = tf.strings.reduce_join(tf.gather(self._texts, ids), axis=-1)
        if not self._unit.is_character:
            text = tf.strings.regex_replace(text, "\n ", "\n")
            text = tf.where(begins_line, tf.strings.regex_replace(text, r"\A ", ""), text)
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
