"""Evaluation of a language model on a corpus, word by word."""

import string

import keras
import numpy as np

from keras_adaptive.data import EOS, UNITS, UNK, ContextWindows
from keras_adaptive.data.batches.token_stream import cut, stream_bounds
from keras_adaptive.data.text.characters import begins_character, is_white_space
from keras_adaptive.metrics import (
    loss_by_bucket,
    loss_by_frequency,
    positions_after,
    probability_by_length,
    probability_by_position,
)

SEGMENT = 512  # tokens of a row to compute at a time
CHUNK = 1 << 22  # tokens in memory at a time
LONGEST = 1 << 14  # tokens of a window, if its cost grows with the square of them
PAIRS = 1 << 25  # pairs of tokens at a time in such windows: 1 GiB of scores, in float32, of 8 heads
POSITIONS = 20  # of which probabilities are returned
LETTERS = 12  # of the longest words of which probabilities are returned


def word_losses(model, corpus, split, block, context, batch_size, by_lines=False, report=None):
    """Returns the loss of every word of a split.

    The loss of a word that is made of sub-words is the sum over its pieces.

    Args:
        model: A `LanguageModel`.
        corpus: A `Corpus`.
        split: "train", "valid" or "test".
        block, context, batch_size, by_lines: As in `ContextWindows`. Long windows are evaluated in smaller batches, and
            in segments.
        report: Function of the numbers of tokens scored and of all tokens, called after each step. Optional.

    Returns:
        `(nll, words)`: the losses in nats, (words,) float64 in the order of the text, and the ids of the words in
        `corpus.word_vocabulary`.

    Raises:
        ValueError: If a file of the split is missing or has changed, or a window is too long for attention.
    """
    corpus.verify(split)
    windows = ContextWindows(corpus.tokens(split), block, context, by_lines=by_lines)
    longest, rows = windows.longest, min(batch_size, len(windows))
    segment = SEGMENT if longest > SEGMENT else None
    if state_grows(model.body):
        if longest > LONGEST:
            raise ValueError(
                f"A window may have {LONGEST:,} tokens, since attention takes time and memory with the square of them: "
                "pass a smaller block or context, and blocks of tokens if a line is longer than that. "
                f"Received: windows of up to {longest:,} tokens."
            )
        segment = segment if longest**2 > PAIRS else None  # a whole window at a time is faster
        rows = min(rows, max(1, PAIRS // (longest * (segment or longest))))
    windows.batch_size = rows
    nll, done = [], 0
    for inputs, targets, weights in windows:
        scored = weights > 0
        count = np.count_nonzero(scored)

        def step(part, parts, done=done, count=count):
            if report:
                report(done + count * part // parts, len(windows.tokens))

        nll.append(model.nll(inputs, targets, segment, step)[scored].astype("float64"))
        done += count
    return of_words(np.concatenate(nll), corpus, split)


def word_losses_of_streams(model, corpus, split, block, streams=1, report=None):
    """Returns the loss of every word of a split that is read from the first token to the last, as `word_losses`.

    The body carries its state from block to block, so that the size of the blocks does not change the losses.

    Args:
        model: A `LanguageModel` whose body's state needs no length.
        corpus: A `Corpus`.
        split: "train", "valid" or "test".
        block: Number of tokens of a stream to compute at a time, at most 512.
        streams: Number of parts of the text that are read side by side, which is faster. Each begins without a state.
        report: As in `word_losses`, of blocks.

    Returns:
        `(nll, words)`, as `word_losses`.

    Raises:
        ValueError: If a file of the split is missing or has changed, or there are more streams than tokens.
    """
    corpus.verify(split)
    tokens = corpus.tokens(split)
    bounds = stream_bounds(len(tokens), streams)
    sizes, segment = np.diff(bounds), min(block, SEGMENT)
    longest = int(sizes.max())
    places = range(0, longest, segment)
    cuts = (cut(tokens, bounds[:-1] + place, bounds[1:], min(segment, longest - place))[:2] for place in places)
    parts = []
    for part in model.nll_of_segments(cuts, streams):
        parts.append(part)
        if report:
            report(len(parts), len(places))
    inside = np.arange(longest) < sizes[:, None]
    return of_words(np.concatenate(parts, axis=1)[inside].astype("float64"), corpus, split)


def of_words(nll, corpus, split):
    """Returns the losses of words, given the losses of tokens, and the ids of the words."""
    return np.add.reduceat(nll, corpus.word_starts(split)), np.asarray(corpus.words(split))


def state_grows(body):
    """Returns whether the state of a body, and with it the cost of a token, grows with the text, as in attention."""
    sizes = [[tuple(part.shape) for part in keras.tree.flatten(body.initial_state(1, length))] for length in (1, 2)]
    return sizes[0] != sizes[1]


def lengths(corpus, split):
    """Returns the length of the text of a split in several units, by which models of different units can be compared.

    Args:
        corpus: A `Corpus`.
        split: "train", "valid" or "test".

    Returns:
        Dict with the numbers of `"byte"`, `"character"` and `"word"` that are known. The end of a line counts in each.
        The words of a corpus of characters or bytes have white space between them, in bytes that of ASCII. The words of
        other corpora are those of their tokenizer, which may divide punctuation from words: the numbers of words agree
        only if that tokenizer is "whitespace", the numbers of bytes always.
    """
    facts, unit = corpus.metadata["splits"][split], corpus.metadata["unit"]
    found = {"byte": facts["bytes"]} if "bytes" in facts else {}  # an earlier version did not write it
    if not is_of_characters(corpus):
        return {**found, "word": len(corpus.words(split))}
    words, tokens = corpus.vocabulary.words, corpus.tokens(split)
    spaces = _white_space(corpus)
    counts, number, after_space = np.zeros(len(words), np.int64), 0, True
    for start in range(0, len(tokens), CHUNK):
        ids = np.asarray(tokens[start : start + CHUNK])
        counts += np.bincount(ids, minlength=len(words))
        space = spaces[ids]
        number += np.count_nonzero(~space & np.append(after_space, space[:-1]))
        after_space = space[-1]
    if corpus.metadata["tokenizer"] == "ptb_characters":  # whose files hold other bytes than the text
        sizes = [1 if word == "</s>" else len(word.encode()) for word in words]
        found = {} if counts[UNK] else {"byte": int(counts @ sizes)}
    begins = [unit == "character" or begins_character(word) for word in words]
    return {**found, "character": int(counts[begins].sum()), "word": int(number + counts[EOS])}


def by_frequency(nll, words, corpus, edges=None):
    """Returns `loss_by_frequency` of losses and word ids, by the counts of the corpus' training text.

    The words may differ from the scored words: they may be the words before them.
    """
    return loss_by_frequency(nll, words, corpus.word_vocabulary.counts, edges)


def by_bucket(nll, words, corpus):
    """Returns `loss_by_bucket` of losses and word ids, by the counts of the corpus' training text."""
    return loss_by_bucket(nll, words, corpus.word_vocabulary.counts)


def is_of_characters(corpus):
    """Returns whether the tokens of a corpus are characters or bytes, not words or sub-words."""
    return corpus.metadata["unit"] in UNITS.values()


def _white_space(corpus):
    """Returns whether each token of the vocabulary of characters or bytes separates words, (vocabulary,) bool."""
    return np.array([is_white_space(word, corpus.metadata["unit"]) for word in corpus.vocabulary.words])


def by_position(nll, words, corpus):
    """Returns the mean probability of the right token by its position in the word or after *The*.

    In a corpus of characters or bytes, the position is that of the character or byte in its word. Words lie between
    white space; the end of a line is white space. In a corpus of words or sub-words, the position is the number of
    words since the last *The*, which approximates the start of a sentence, as "the" does not. The count continues after
    the end of the sentence and of the line, which is a word.

    Reference:
        Merity, Keskar and Socher, An Analysis of Neural Language Modeling at Multiple Scales, 2018, figure 1.

    Args:
        nll, words: What `word_losses` returns.
        corpus: Their `Corpus`.

    Returns:
        `probability_by_position` of the first 20 positions; an empty list if no word follows a *The*.
    """
    if is_of_characters(corpus):
        spaces = _white_space(corpus)[words]
        return probability_by_position(nll[~spaces], positions_after(spaces)[~spaces], POSITIONS)
    vocabulary = corpus.word_vocabulary
    begins = (words == vocabulary.encode(["The"])) & ("The" in vocabulary)
    first = 1 + np.argmax(begins) if begins.any() else len(words)
    return probability_by_position(nll[first:], positions_after(begins[first:]), POSITIONS)


def by_length(nll, words, corpus):
    """Returns the mean probability of each character of the words of each length, and of the white space after them.

    A word is two or more of the letters A to Z and a to z between white space; the end of a line is white space.

    Reference:
        Merity, Keskar and Socher, An Analysis of Neural Language Modeling at Multiple Scales, 2018, figure 2.

    Args:
        nll, words: What `word_losses` returns.
        corpus: Their `Corpus`.

    Returns:
        `probability_by_length` of words of at most 12 letters; an empty list for a corpus of words or sub-words.
    """
    if not is_of_characters(corpus):
        return []
    letters = np.isin(corpus.vocabulary.words, list(string.ascii_letters))
    return probability_by_length(nll, _white_space(corpus)[words], letters[words], LETTERS)
