from keras_adaptive.data.vocabulary import SPECIAL_WORDS


class GraphSubwords:
    """Cuts words into pieces inside a TensorFlow graph, for serving: the ids that training saw.

    It gives every word to keras-nlp's `BytePairTokenizer`, and to the special words their own ids. Call that one
    directly and `<unk>` is cut into pieces; outside a graph it also cuts words in another way than in one. Its
    `tables` must be tracked by what is exported, `archive.track(graph_subwords.tables)`, and `import tensorflow_text`
    is needed where that is loaded.

    keras-nlp drops NUL and the digit `६` (U+096C), which it uses itself, so a word with either raises an error; and
    to the regular expressions of TensorFlow 2.21 letters younger than Unicode 15 are no letters, so a word with one
    may be cut elsewhere.

    Args:
        subwords: the `Subwords` of a corpus.
        vocabulary: the corpus's `Vocabulary` of pieces.

    Call arguments:
        words: strings without white space, `(words,)`, such as `tf.strings.split(line)`, which knows ASCII's only.

    Returns, when called, a `tf.RaggedTensor` of ids, `(words, None)`, int32; its `flat_values` are those of a line.

    Raises:
        ValueError: if the vocabulary lacks a piece, since it belongs to another corpus.
        tf.errors.InvalidArgumentError: when called with NUL or `६`.

    Example:

    ```python
    corpus = load_corpus("data/books_bpe")
    graph_subwords = GraphSubwords(corpus.subwords(), corpus.vocabulary)
    graph_subwords(tf.strings.split("It was the <unk> of times")).flat_values
    ```
    """

    def __init__(self, subwords, vocabulary):
        lacking = vocabulary.unknown(subwords.symbols)
        if lacking:
            raise ValueError(
                "`vocabulary` must be of these sub-words: take both from one corpus. "
                f"It lacks {len(lacking)} of their pieces, such as {lacking[0]!r}."
            )
        tf, BytePairTokenizer = _import_keras_nlp()
        ids = {word: i for i, word in enumerate(vocabulary.words)}
        self.tokenizer = BytePairTokenizer(ids, [" ".join(merge) for merge in subwords.merges])
        self.tables = tf.Module()  # of the tokenizer, which only the TensorFlow backend tracks
        kinds = (tf.Module, tf.lookup.StaticHashTable)
        self.tables.all = [table for table in vars(self.tokenizer).values() if isinstance(table, kinds)]
        self._function = tf.function(self._ids, [tf.TensorSpec([None], tf.string)], autograph=False)

    def __call__(self, words):
        return self._function(words)

    def _ids(self, words):
        import tensorflow as tf

        wrong = tf.reduce_any(tf.strings.regex_full_match(words, r"(?s).*[\x00६].*"))
        safe = tf.debugging.Assert(~wrong, ["Words must not hold NUL or the digit ६, which keras-nlp would drop."])
        with tf.control_dependencies([safe]):
            matches = words[:, None] == tf.constant(SPECIAL_WORDS)  # (words, 4); their places are their ids
        special = tf.reduce_any(matches, axis=1)
        places = tf.argmax(matches, axis=1, output_type=tf.int32)
        own = tf.RaggedTensor.from_row_lengths(places[special], tf.cast(special, tf.int64))
        cut = self.tokenizer(tf.where(special, "", tf.strings.join([" ", words])))  # "" has no pieces
        return tf.concat([own, cut], axis=1)


def _import_keras_nlp():
    try:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401
        from keras_nlp.tokenizers import BytePairTokenizer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Sub-words in a graph need keras-nlp and tensorflow-text ({error}): pip install keras-nlp tensorflow-text"
        ) from None
    return tf, BytePairTokenizer
