"""Evaluation of a language model on a corpus, word by word."""

import numpy as np

from keras_adaptive.data import ContextWindows
from keras_adaptive.metrics import loss_by_frequency


def word_losses(model, corpus, split, block, context, batch_size, by_lines=False):
    """Returns the loss of every word of a split.

    The loss of a word that is made of sub-words is the sum over its pieces.

    Args:
        model: A `LanguageModel`.
        corpus: A `Corpus`.
        split: "train", "valid" or "test".
        block, context, batch_size, by_lines: As in `ContextWindows`.

    Returns:
        `(nll, words)`: the losses in nats, (words,) float64 in the order of the text, and the ids of the words in
        `corpus.word_vocabulary`.

    Raises:
        ValueError: If a file of the split is missing or has changed.
    """
    corpus.verify(split)
    windows = ContextWindows(corpus.tokens(split), block, context, batch_size=batch_size, by_lines=by_lines)
    nll = np.concatenate([losses(model, *batch) for batch in windows])
    return np.add.reduceat(nll, corpus.word_starts(split)), np.asarray(corpus.words(split))


def losses(model, inputs, targets, weights):
    """Returns the losses of the scored tokens of a batch of windows, float64 in the order of the text."""
    return model.nll(inputs, targets)[weights > 0].astype("float64")


def by_frequency(nll, words, corpus, edges=None):
    """Returns `loss_by_frequency` of losses and word ids, by the counts of the corpus' training text.

    The words may differ from the scored words: they may be the words before them.
    """
    return loss_by_frequency(nll, words, corpus.word_vocabulary.counts, edges)
