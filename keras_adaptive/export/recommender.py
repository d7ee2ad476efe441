import os

import numpy as np

from keras_adaptive.data import Vocabulary
from keras_adaptive.export.checks import check_finite_weights
from keras_adaptive.export.saved_model import check_export
from keras_adaptive.files import complete_or_absent
from keras_adaptive.models import WordModel
from keras_adaptive.special_words import PAD, SPECIAL_WORDS, UNK


def export_recommender(
    model: WordModel, vocabulary: Vocabulary, folder: str | os.PathLike, *, length: int, k: int = 10
) -> None:
    """Writes a SavedModel from histories of items to the best items, as strings.

    Its signature `recommend(history)`, the default, takes the names of items, string (batch, length), in the order of
    the clicks. Rows have at most `length` columns and are padded on the right with "". It returns `items`, string
    (batch, k), the k most probable items that are not in the history, and `log_probs`, float32 (batch, k), in nats, in
    descending order. Where fewer items are left, `items` is "" and `log_probs` −∞. An item outside the vocabulary is
    read as `<unk>`; the special words are never recommended. A row without items, or with "" between items, is an
    error. TensorFlow loads the folder without Keras and without this package.

    Args:
        model: A `WordModel` of one input of ids (batch, length) with hidden states at every place (batch, length, dim),
            each of which depends on the items up to there.
        vocabulary: Its `Vocabulary`, such as that of `item_sequences`. Names are those of `str(item)`.
        folder: Folder to write, which appears complete or not at all. TensorFlow Serving expects a number as its last
            part.
        length: Largest number of items in a history.
        k: Number of items to recommend.

    Raises:
        ValueError: If the backend is not TensorFlow, the folder is not empty, the vocabulary has another size than the
            model, two items have one name, the hidden states have another form, `k` exceeds the number of items,
            `length` is below 1, or a weight is not finite. Nothing is written in these cases.

    Example:

    ```python
    sequences = item_sequences({"user": [1, 1, 1, 2, 2, 2], "item": list("abcacb")}, time=None, split=None)
    items, history = len(sequences.vocabulary), keras.Input((None,), dtype="int32")
    hidden = keras.layers.GRU(8, return_sequences=True)(AdaptiveEmbedding(items, 8, ())(history))
    model = WordModel(history, hidden, word_output=AdaptiveSoftmax(items, ()))
    export_recommender(model, sequences.vocabulary, "exports/recommender/1", length=50, k=2)
    served = tf.saved_model.load("exports/recommender/1")
    served.recommend([["a", "b", ""]])["items"]  # (1, 2)
    ```
    """
    check_export(folder)
    names = [str(item) for item in vocabulary.words]
    _check(model, names, length, k)
    import tensorflow as tf

    module = tf.Module()
    module.weights = [variable.value for variable in [*model.weights, *model.word_output.weights]]
    words, first = tf.constant(names), len(SPECIAL_WORDS)
    pairs = tf.lookup.KeyValueTensorInitializer(words[first:], tf.range(first, len(names)))
    module.table = table = tf.lookup.StaticHashTable(pairs, UNK)
    allowed = np.arange(len(names)) >= first
    output = model.word_output.for_inference()

    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.string, name="history")])
    def recommend(history):
        given = history != ""
        lengths = tf.reduce_sum(tf.cast(given, tf.int32), axis=1)
        rows = tf.sequence_mask(lengths, tf.shape(history)[1])
        fits = tf.reduce_all((rows == given) & (lengths[:, None] > 0)) & (tf.shape(history)[1] <= length)
        message = f'A history must have an item, "" only after its last item, and at most {length} columns.'
        with tf.control_dependencies([tf.debugging.Assert(fits, [message])]):
            ids = tf.where(given, table.lookup(history), PAD)
        ids = tf.pad(ids, [[0, 0], [0, length - tf.shape(ids)[1]]], constant_values=PAD)
        ids = tf.ensure_shape(ids, (None, length))  # `top_k` skips tails for a known number
        hidden = tf.gather(model(ids, training=False), lengths - 1, batch_dims=1)
        log_probs, best = output.top_k(hidden, k, exclude=ids, allowed=allowed)
        items = tf.where(best < 0, "", tf.gather(words, tf.maximum(best, 0)))
        return {"items": items, "log_probs": log_probs}

    module.recommend = recommend
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)  # serving needs no gradients
    with complete_or_absent(folder) as new:
        tf.saved_model.save(module, str(new), {"recommend": recommend, "serving_default": recommend}, options)


def _check(model, names, length, k):
    size = model.word_output.vocabulary_size
    if len(names) != size:
        raise ValueError(f"`vocabulary` must have the {size} words of the model. Received: size={len(names)}.")
    if len(set(names)) < size or "" in names:
        raise ValueError('The items of `vocabulary` must have different names, none of which is "".')
    shapes = [one.shape for one in (*model.inputs, *model.outputs)]
    if [len(shape) for shape in shapes] != [2, 3]:
        raise ValueError(
            "`model` must have one input of ids (batch, length), and hidden states (batch, length, dim). "
            f"Received: shapes={shapes}."
        )
    if length < 1:
        raise ValueError(f"`length` must be at least 1. Received: length={length}.")
    if not 0 < k <= size - len(SPECIAL_WORDS):
        raise ValueError(f"`k` must be from 1 to {size - len(SPECIAL_WORDS)}, the number of items. Received: k={k}.")
    check_finite_weights([*model.weights, *model.word_output.weights])
