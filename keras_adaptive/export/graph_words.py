"""Tokenizers inside a TensorFlow graph, which return the same words as in training."""

import functools
import re

from keras_adaptive.data.codecs.characters import SYMBOLS
from keras_adaptive.data.codecs.words import LETTER, TOKENIZERS, rule
from keras_adaptive.typing import Tensor

_BEFORE_WORD = "\x1f"  # this character is white space, so no word contains it


def graph_words(lines: Tensor, tokenizer: str) -> Tensor:
    """Splits lines into words as `TOKENIZERS[tokenizer]` does, with operations of TensorFlow only.

    Letters, digits and white space are defined by the Python that builds the graph, which writes their ranges into it.
    Bytes that are not UTF-8 become U+FFFD, as in `bytes.decode(errors="replace")`.

    Args:
        lines: String tensor (lines,).
        tokenizer: A name in `TOKENIZERS`.

    Returns:
        A `tf.RaggedTensor` of strings (lines, words).

    Raises:
        ValueError: If `tokenizer` is unknown.

    Example:

    >>> graph_words(tf.constant(["The cat, sat", ""]), "words").to_list()
    [[b'The', b'cat', b',', b'sat'], []]
    """
    if tokenizer not in TOKENIZERS:
        raise ValueError(f"`tokenizer` must be one of {list(TOKENIZERS)}. Received: tokenizer={tokenizer!r}.")
    import tensorflow as tf

    lines = tf.strings.unicode_transcode(lines, "UTF-8", "UTF-8", errors="replace")
    if tokenizer == "characters":
        return tf.strings.unicode_split(lines, "UTF-8")
    if tokenizer == "bytes":
        parts = tf.strings.bytes_split(lines)
        numbers = tf.cast(tf.io.decode_raw(parts.values, tf.uint8), tf.int32)
        return parts.with_values(tf.gather(SYMBOLS, tf.reshape(numbers, [-1])))
    lines = tf.strings.regex_replace(lines, explicit(r"[\s]+"), " ")
    if tokenizer == "words":
        return _words_and_marks(lines)
    words = tf.strings.split(lines)
    if tokenizer == "ptb_characters":
        words = words.with_values(tf.where(words.values == "_", " ", words.values))
    return words


def _words_and_marks(lines):
    """Splits lines into words and marks. Runs of a mark are joined afterwards, since RE2 has no back references."""
    import tensorflow as tf

    word, mark, _ = rule()
    lines = tf.strings.regex_replace(lines, explicit(f"{mark}|{word}"), rf"{_BEFORE_WORD}\0")
    parts = tf.strings.split(lines, _BEFORE_WORD)[:, 1:]  # each part is a word, followed by its space if there was one
    rows, parts = parts.value_rowids(), parts.flat_values
    words = tf.strings.strip(parts)
    goes_on = (rows[1:] == rows[:-1]) & (words[1:] == parts[:-1])
    begins = tf.concat([tf.ones_like(rows[:1], tf.bool), ~goes_on], axis=0)
    number = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    joined = tf.strings.unsorted_segment_join(words, number, tf.reduce_sum(tf.cast(begins, tf.int32)))
    nrows = tf.size(lines, tf.int64)
    return tf.RaggedTensor.from_value_rowids(joined, tf.boolean_mask(rows, begins), nrows, validate=False)


def explicit(pattern: str) -> str:
    r"""Returns a pattern of Python with its \d, \s, \w and `LETTER` as ranges, for RE2 and Oniguruma.

    The classes must be in brackets.
    """
    pattern = pattern.replace(LETTER, f"[{_ranges(LETTER)}]")
    for name in filter(pattern.__contains__, (r"\d", r"\s", r"\w")):
        pattern = pattern.replace(name, _ranges(name))
    return pattern


@functools.cache
def _ranges(name):
    r"""Returns the code points of Python's \d, \s, \w or `LETTER` as ranges of RE2 between brackets."""
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))  # UTF-8 has no surrogates
    runs = (match.span() for match in re.finditer(f"{name}+", everything))
    return "".join(rf"\x{{{ord(everything[low]):x}}}-\x{{{ord(everything[high - 1]):x}}}" for low, high in runs)
