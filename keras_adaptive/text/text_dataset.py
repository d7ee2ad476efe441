from typing import Any

from keras_adaptive.data import EOS, PAD, UNK, TextCodec
from keras_adaptive.export import GraphText

LINES = 1024  # to tokenize at a time


def text_dataset(lines: Any, codec: TextCodec, length: int, batch_size: int, *, shuffle: int = 0, seed: int = 0) -> Any:
    """Returns a `tf.data.Dataset` of batches for `fit`, made of lines of text inside TensorFlow's graph.

    Without shuffling, the batches equal those of `BlockBatches(..., shuffle=False)` on the ids of the text. The text is
    read lazily and tokenized as `codec` does. Keras reads such a data set on every backend; TensorFlow must be
    installed.

    Args:
        lines: A `tf.data.Dataset` of strings, a line each, such as `tf.data.TextLineDataset("train.txt")`. A `</s>`
            ends each line, and replaces line breaks within a string. Bytes that are not UTF-8 become U+FFFD.
        codec: The `TextCodec` of the model.
        length: Number of tokens of a block.
        batch_size: Number of blocks of a batch.
        shuffle: Number of blocks in memory, from which the next one is drawn; 0 keeps the order of the text.
        seed: Integer that determines the order of shuffled blocks. It differs from epoch to epoch.

    Returns:
        A `tf.data.Dataset` of `(inputs, targets, weights)`, each (batch_size, length), int32, int32 and float32. The
        last block and the last batch are padded, with weight 0. Keras does not know their number: repeat the data set
        and pass `steps_per_epoch` to `fit`.

    Example:

    ```python
    corpus = load_corpus("data/books")
    lines = tf.data.TextLineDataset("train.txt")
    batches = text_dataset(lines, TextCodec.load("data/books"), length=128, batch_size=8, shuffle=1000)
    model = transformer_lm(len(corpus.vocabulary), dim=16, num_blocks=1, num_heads=2, ffn_dim=32, cutoffs=(4,))
    model.compile("adam")
    model.fit(batches.repeat(), steps_per_epoch=10, epochs=2, shuffle=False, verbose=0)
    ```
    """
    if min(length, batch_size) < 1:
        raise ValueError(f"Lengths and batches must not be empty. Received: length={length}, batch_size={batch_size}.")
    import tensorflow as tf

    text = GraphText(codec.vocabulary, codec.tokenizer, codec.subwords)

    def ids_of(lines):
        """Returns the ids (tokens,) of lines (lines,), with their ends."""
        _, ids = text.encode(tf.strings.regex_replace(lines, r"\n\z", ""))
        ends = tf.fill([tf.size(lines), 1], EOS)
        ids = tf.concat([ids, ends], axis=1).flat_values
        return tf.where(ids < 0, UNK, ids)

    def with_inputs(last, targets):
        """Returns the last token of a block, and `(inputs, targets)` (tokens,)."""
        return targets[-1], (tf.concat([last[None], targets[:-1]], 0), targets)

    def padded(*block):
        missing = [[0, length - tf.size(block[0])]]
        weights = tf.ones_like(block[0], tf.float32)
        block = [tf.pad(ids, missing, constant_values=PAD) for ids in block]
        return *block, tf.pad(weights, missing)

    def full(*batch):
        missing = [[0, batch_size - tf.shape(batch[0])[0]], [0, 0]]
        inputs, targets = (tf.pad(ids, missing, constant_values=PAD) for ids in batch[:2])
        shape = (batch_size, length)
        return tuple(tf.ensure_shape(one, shape) for one in (inputs, targets, tf.pad(batch[2], missing)))

    blocks = lines.batch(LINES).map(ids_of).rebatch(length).scan(tf.constant(EOS), with_inputs).map(padded)
    if shuffle:
        blocks = blocks.shuffle(shuffle, seed)
    dataset = blocks.batch(batch_size).map(full).prefetch(tf.data.AUTOTUNE)
    dataset._text = text  # its tables must live as long as the graph
    return dataset
