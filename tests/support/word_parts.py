"""Every input and every output of a language model, small. A new one is one more line."""

from functools import partial

import keras

from keras_adaptive.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    CharCNN,
    CharCNNSoftmax,
    CharLSTMSoftmax,
    LinearCrossEntropy,
    SampledSoftmax,
    WordEmbedding,
)


def inputs(words, dim, cutoffs):
    """Returns functions `(**kwargs) -> layer` by name, for these words and vectors of `dim` numbers."""
    return {
        "adaptive": partial(AdaptiveEmbedding, len(words), dim, cutoffs, factor=2),
        "word": partial(WordEmbedding, len(words), dim),
        "CNN of characters": partial(CharCNN, words, dim, char_dim=4, filters=(3, 4), max_bytes=4),
    }


def outputs(words, dim, cutoffs):
    """Returns functions `(**kwargs) -> layer` by name, for these words and hidden states of `dim` numbers."""
    size = len(words)

    def tied(make_embedding, *arguments, **kwargs):
        return AdaptiveSoftmax(size, *arguments, tied_to=make_embedding(size, dim), **kwargs)

    def of_dense(**kwargs):
        return LinearCrossEntropy(tied_to=keras.layers.Dense(size, bias_initializer="normal"), **kwargs)

    return {
        "adaptive": partial(AdaptiveSoftmax, size, cutoffs, factor=2),
        "adaptive, tied": partial(tied, partial(AdaptiveEmbedding, cutoffs=cutoffs, factor=2), cutoffs),
        "plain": partial(AdaptiveSoftmax, size, ()),
        "one table, tied, biases": partial(tied, WordEmbedding, cutoffs, use_bias=True),
        "weights of a Dense": of_dense,
        "sampled": partial(SampledSoftmax, size, 6),
        "CNN of characters": partial(
            CharCNNSoftmax, words, 6, correction_dim=3, char_dim=4, filters=(3, 4), max_bytes=4
        ),
        "LSTM of characters": partial(CharLSTMSoftmax, words, units=6, char_dim=3, normalized=True),
    }
