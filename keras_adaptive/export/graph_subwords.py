from keras_adaptive.data.codecs.subwords import Subwords, piece_bytes
from keras_adaptive.data.codecs.vocabulary import Vocabulary
from keras_adaptive.special_words import SPECIAL_WORDS
from keras_adaptive.typing import Tensor

_BEFORE_PART = "\x1f"  # this character is white space, so no word contains it
_PARTS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^ \p{L}\p{N}]+"  # GPT-2's, without its cases of white space
_NO_PAIR = -1


class GraphSubwords:
    """Tokenizes words into sub-words inside a TensorFlow graph, with the ids that training used.

    It uses operations of TensorFlow only, so that an exported model needs no other package. The exported object must
    track its `tables`: `archive.track(graph_subwords.tables)`.

    The regular expressions of TensorFlow 2.21 do not know letters newer than Unicode 15. A word with such a letter may
    be cut differently.

    Args:
        subwords: The `Subwords` of a corpus.
        vocabulary: The `Vocabulary` of its pieces.

    Call arguments:
        words: String tensor (words,) without white space, such as `tf.strings.split(line)`, which splits at the white
            space of ASCII only.

    Returns:
        When called, a `tf.RaggedTensor` of int32 ids (words, None). Its `flat_values` are the ids of a line.

    Raises:
        ValueError: If the vocabulary lacks a piece, because it belongs to another corpus.

    Example:

    ```python
    corpus = load_corpus("data/books_bpe")
    graph_subwords = GraphSubwords(corpus.subwords(), corpus.vocabulary)
    graph_subwords(tf.strings.split("It was the <unk> of times")).flat_values
    ```
    """

    def __init__(self, subwords: Subwords, vocabulary: Vocabulary) -> None:
        missing = vocabulary.unknown(subwords.symbols)
        if missing:
            raise ValueError(
                "`vocabulary` must hold all pieces of `subwords`: take both from one corpus. "
                f"Received: a vocabulary without {len(missing)} of them, such as {missing[0]!r}."
            )
        import tensorflow as tf

        ids = {word: i for i, word in enumerate(vocabulary.words)}
        of_bytes = {piece_bytes(symbol)[0]: ids[symbol] for symbol in subwords.symbols if len(symbol) == 1}
        self._of_bytes = tf.constant([of_bytes[byte] for byte in range(256)])
        self._size, self._never = len(ids), len(subwords.merges)
        pairs = [ids[left] * self._size + ids[right] for left, right in subwords.merges]
        ranks = tf.lookup.KeyValueTensorInitializer(pairs, range(self._never), tf.int64, tf.int64)
        self._made = tf.constant([ids[left + right] for left, right in subwords.merges], tf.int32)
        self.tables = tf.Module()
        self.tables.ranks = tf.lookup.StaticHashTable(ranks, self._never)
        self._function = tf.function(self._ids, [tf.TensorSpec([None], tf.string)], autograph=False)

    def __call__(self, words: Tensor) -> Tensor:
        return self._function(words)

    def _ids(self, words):
        import tensorflow as tf

        matches = words[:, None] == tf.constant(SPECIAL_WORDS)  # (words, 4); the column is the id
        special = tf.reduce_any(matches, axis=1)
        places = tf.argmax(matches, axis=1, output_type=tf.int32)
        single_pieces = tf.RaggedTensor.from_row_lengths(places[special], tf.cast(special, tf.int64))
        spaced = tf.where(special, "", tf.strings.join([" ", words]))  # "" has no pieces
        parts = tf.strings.split(tf.strings.regex_replace(spaced, _PARTS, rf"{_BEFORE_PART}\0"), _BEFORE_PART)[:, 1:]
        single = tf.strings.bytes_split(parts.flat_values)
        numbers = tf.io.decode_raw(single.flat_values, tf.uint8, fixed_length=1)[:, 0]
        pieces = tf.gather(self._of_bytes, tf.cast(numbers, tf.int32))
        pieces, places = self._merged(pieces, single.value_rowids())
        merged = tf.RaggedTensor.from_value_rowids(pieces, places, single.nrows(), validate=False)
        return tf.concat([single_pieces, parts.with_values(merged).merge_dims(1, 2)], axis=1)

    def _merged(self, pieces, parts):
        """Merges the bytes of all parts in the learned order, from the left. Memory is linear in their number.

        The `pieces` are ids of bytes, and `parts` the numbers of their parts, ascending. Both are returned merged.
        """
        import tensorflow as tf

        def ranks(pieces, parts):
            """Returns the rank of the merge of each piece with its successor, (pieces − 1,)."""
            left, right = (tf.cast(some, tf.int64) for some in (pieces[:-1], pieces[1:]))
            return self.tables.ranks.lookup(tf.where(parts[:-1] == parts[1:], left * self._size + right, _NO_PAIR))

        def merge(pieces, parts, rank):
            """Merges the pairs of the earliest rank in each part."""
            earliest = tf.math.segment_min(rank, parts[:-1])
            merges = (rank == tf.gather(earliest, parts[:-1])) & (rank < self._never)
            # A run of equal pieces has overlapping pairs: every second pair merges, starting with the first.
            places = tf.range(tf.size(merges))
            begins = merges & ~tf.concat([[False], merges[:-1]], axis=0)
            number = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32)) - 1, 0)
            merges &= (places - tf.gather(tf.boolean_mask(places, begins), number)) % 2 == 0
            made = tf.gather(self._made, tf.minimum(rank, self._never - 1))
            pieces = tf.concat([tf.where(merges, made, pieces[:-1]), pieces[-1:]], axis=0)
            stays = tf.concat([[True], ~merges], axis=0)
            pieces, parts = tf.boolean_mask(pieces, stays), tf.boolean_mask(parts, stays)
            return pieces, parts, ranks(pieces, parts)

        can_merge = lambda pieces, parts, rank: tf.reduce_any(rank < self._never)  # noqa: E731
        any_size = (tf.TensorShape([None]),) * 3
        return tf.while_loop(can_merge, merge, (pieces, parts, ranks(pieces, parts)), any_size)[:2]
