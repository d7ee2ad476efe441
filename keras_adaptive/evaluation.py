"""Evaluation of a language model on a corpus, word by word."""

import itertools
import string
from collections.abc import Callable

import numpy as np

from keras_adaptive.data import EOS, UNK, ContextWindows, Corpus
from keras_adaptive.data.batches.token_stream import cut, stream_bounds
from keras_adaptive.memory.adapting import Adapting
from keras_adaptive.metrics import positions_after, probability_by_length, probability_by_position
from keras_adaptive.models import LanguageModel
from keras_adaptive.models.reading import state_grows

Mix = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # from hidden states, ids and losses to losses

SEGMENT = 512  # number of tokens of a row to compute at a time
CHUNK = 1 << 22  # number of tokens in memory at a time
LONGEST = 1 << 14  # largest number of tokens in a window if its cost is quadratic
PAIRS = 1 << 25  # number of pairs of tokens at a time in such windows: 1 GiB of scores of 8 heads in float32
POSITIONS = 20  # probabilities are returned for positions up to this one
LETTERS = 12  # probabilities are returned for words of at most this length


def word_losses(
    model: LanguageModel,
    corpus: Corpus,
    split: str,
    block: int,
    context: int,
    batch_size: int,
    by_lines: bool = False,
    report: Callable[[int, int], None] | None = None,
    mix: Mix | None = None,
    keys: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the loss of every word of a split.

    The loss of a word that consists of sub-words is the sum of the losses of its pieces.

    Args:
        model: A `LanguageModel`. One that `memory.adapting` returned learns from each step before the next.
        corpus: A `Corpus`.
        split: "train", "valid" or "test".
        block: Number of tokens to score in a window, as in `ContextWindows`.
        context: Number of tokens before the block, as in `ContextWindows`.
        batch_size: Largest number of windows to compute at a time. Long windows are computed in smaller batches, and in
            segments.
        by_lines: Whether blocks consist of whole lines, as in `ContextWindows`.
        report: Function `(scored, tokens)` of the number of tokens scored so far and the number of all tokens. It is
            called after each step. Optional.
        mix: Function `(hidden, ids, nll)` of the hidden states before all tokens, (tokens, dim), the ids of the tokens
            and their losses, that returns other losses, such as `ContinuousCache.nll`. Optional.
        keys: Whether `mix` gets the keys of a `Memory` in place of hidden states, such as `Memory.nll`.

    Returns:
        `(nll, words)`, two arrays (words,) in the order of the text: the losses in nats (float64), and the ids of the
        words in `corpus.word_vocabulary`.

    Raises:
        ValueError: If a file of the split is missing or has changed, or a window is too long for attention.

    Example:

    ```python
    corpus = load_corpus("data/books")
    model = keras.saving.load_model("runs/books/best.keras")
    nll, words = keras_adaptive.evaluation.word_losses(model, corpus, "test", block=64, context=16, batch_size=4)
    keras_adaptive.metrics.perplexity(nll.mean())
    ```
    """
    corpus.verify(split)
    windows = ContextWindows(corpus.tokens(split), block, context, by_lines=by_lines)
    longest, rows = windows.longest, min(batch_size, len(windows))
    segment = SEGMENT if longest > SEGMENT else None
    if state_grows(model.body):
        if longest > LONGEST:
            raise ValueError(
                f"A window may have at most {LONGEST:,} tokens, since the time and memory of attention are quadratic: "
                "pass a smaller block or context, or blocks of tokens if a line is longer. "
                f"Received: windows of up to {longest:,} tokens."
            )
        segment = segment if longest**2 > PAIRS else None  # a whole window at a time is faster
        rows = min(rows, max(1, PAIRS // (longest * (segment or longest))))
    windows.batch_size = rows
    parts, done = [], 0
    for inputs, targets, weights in windows:
        scored = weights > 0
        count = np.count_nonzero(scored)

        def step(part, parts, done=done, count=count):
            if report:
                report(done + count * part // parts, len(windows.tokens))

        if keys:
            measured = model.nll_and_keys(inputs, targets, segment, step)
        elif mix:
            measured = model.nll_and_hidden(inputs, targets, segment, step)
        else:
            measured = [model.nll(inputs, targets, segment, step)]
        parts.append([array[scored] for array in measured])
        done += count
        if isinstance(model, Adapting):
            model.adapt(inputs, targets, weights)
    return sum_by_word(_mixed([np.concatenate(arrays) for arrays in zip(*parts)], corpus, split, mix), corpus, split)


def word_losses_of_streams(
    model: LanguageModel,
    corpus: Corpus,
    split: str,
    block: int,
    streams: int = 1,
    report: Callable[[int, int], None] | None = None,
    mix: Mix | None = None,
    keys: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the loss of every word of a split that is read from its first token to its last.

    The body carries its state from block to block, so that the losses do not depend on the size of the blocks.

    Args:
        model: A `LanguageModel` whose body has a state of fixed size, such as a recurrent body. One that
            `memory.adapting` returned learns from each block before the next.
        corpus: A `Corpus`.
        split: "train", "valid" or "test".
        block: Number of tokens of a stream to compute at a time, at most 512.
        streams: Number of parts of the text that are read in parallel, which is faster. Each part begins with the
            initial state.
        report: Function `(computed, blocks)` of the number of blocks computed so far and the number of all blocks.
            Optional.
        mix, keys: As in `word_losses`.

    Returns:
        `(nll, words)`, as in `word_losses`.

    Raises:
        ValueError: If a file of the split is missing or has changed, or there are more streams than tokens.
    """
    corpus.verify(split)
    tokens = corpus.tokens(split)
    bounds = stream_bounds(len(tokens), streams)
    sizes, segment = np.diff(bounds), min(block, SEGMENT)
    longest = int(sizes.max())
    places = range(0, longest, segment)
    cuts, read = itertools.tee(
        cut(tokens, bounds[:-1] + place, bounds[1:], min(segment, longest - place)) for place in places
    )
    parts = []
    pairs = (block[:2] for block in cuts)
    for part, block in zip(model.nll_of_segments(pairs, streams, hidden=bool(mix) and not keys, keys=keys), read):
        parts.append(part if mix else [part])
        if isinstance(model, Adapting):
            model.adapt(*block, begins=len(parts) == 1)
        if report:
            report(len(parts), len(places))
    inside = np.arange(longest) < sizes[:, None]
    arrays = [np.concatenate(of_blocks, axis=1)[inside] for of_blocks in zip(*parts)]
    return sum_by_word(_mixed(arrays, corpus, split, mix), corpus, split)


def _mixed(arrays, corpus, split, mix):
    """Returns the losses of all tokens, float64, after `mix` of `arrays`: the losses and the hidden states."""
    nll, *hidden = arrays
    nll = nll.astype("float64")
    return mix(*hidden, np.asarray(corpus.tokens(split)), nll) if mix else nll


def sum_by_word(nll: np.ndarray, corpus: Corpus, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Sums the losses of tokens over words, and returns the losses and the ids of the words."""
    return np.add.reduceat(nll, corpus.word_starts(split)), np.asarray(corpus.words(split))


def lengths(corpus: Corpus, split: str) -> dict[str, int]:
    """Returns the length of the text of a split in several units, to compare models of different units.

    The end of a line counts as one of each unit. In a corpus of characters or bytes, white space separates words; for
    bytes, this is the white space of ASCII. In other corpora, the tokenizer defines the words, and may separate
    punctuation from them. The numbers of bytes of two corpora of a text therefore always agree, and the numbers of
    words agree only if the tokenizer is "whitespace". The units are "byte", "character" and "word", as far as their
    numbers are known.
    """
    known = {"byte": corpus.metadata["splits"][split]["text_bytes"]}
    if not corpus.unit.is_character:
        return {**known, "word": len(corpus.words(split))}
    words, tokens = corpus.vocabulary.words, corpus.tokens(split)
    spaces = _white_space(corpus)
    counts, number, after_space = np.zeros(len(words), np.int64), 0, True
    for start in range(0, len(tokens), CHUNK):
        ids = np.asarray(tokens[start : start + CHUNK])
        counts += np.bincount(ids, minlength=len(words))
        space = spaces[ids]
        number += np.count_nonzero(~space & np.append(after_space, space[:-1]))
        after_space = space[-1]
    if corpus.metadata["tokenizer"] == "ptb_characters":  # the bytes of its files differ from the bytes of the text
        sizes = [1 if word == "</s>" else len(word.encode()) for word in words]
        known = {} if counts[UNK] else {"byte": int(counts @ sizes)}
    begins = list(map(corpus.unit.begins_character, words))
    return {**known, "character": int(counts[begins].sum()), "word": int(number + counts[EOS])}


def _white_space(corpus):
    """Returns whether each character or byte of the vocabulary separates words, a boolean array (vocabulary,)."""
    return np.array(list(map(corpus.unit.is_white_space, corpus.vocabulary.words)))


def by_position(nll: np.ndarray, words: np.ndarray, corpus: Corpus) -> list[dict]:
    """Returns the mean probability of the correct token by its position in the word, or after *The*.

    In a corpus of characters or bytes, the position is the position in the word. Words are separated by white space;
    the end of a line is white space. In a corpus of words or sub-words, the position is the number of words since the
    last *The*. This approximates the start of a sentence, where "the" would not. The count continues after the end of
    the sentence and of the line. The end of a line counts as a word.

    `nll` and `words` (words,) are what `word_losses` returns for the corpus. The list is `probability_by_position` of
    the first 20 positions. It is empty if no word follows a *The*.

    Reference:
        Merity, Keskar and Socher, An Analysis of Neural Language Modeling at Multiple Scales, 2018, figure 1.
    """
    if corpus.unit.is_character:
        spaces = _white_space(corpus)[words]
        return probability_by_position(nll[~spaces], positions_after(spaces)[~spaces], POSITIONS)
    vocabulary = corpus.word_vocabulary
    begins = (words == vocabulary.encode(["The"])) & ("The" in vocabulary)
    first = 1 + np.argmax(begins) if begins.any() else len(words)
    return probability_by_position(nll[first:], positions_after(begins[first:]), POSITIONS)


def by_length(nll: np.ndarray, words: np.ndarray, corpus: Corpus) -> list[dict]:
    """Returns the mean probability of each character in words of each length, and of the white space that follows.

    A word is two or more of the letters A to Z and a to z between white space. The end of a line is white space.

    `nll` and `words` (characters,) are what `word_losses` returns for the corpus. The list is `probability_by_length`
    of words of at most 12 letters. It is empty for a corpus of words or sub-words.

    Reference:
        Merity, Keskar and Socher, An Analysis of Neural Language Modeling at Multiple Scales, 2018, figure 2.
    """
    if not corpus.unit.is_character:
        return []
    letters = np.isin(corpus.vocabulary.words, list(string.ascii_letters))
    return probability_by_length(nll, _white_space(corpus)[words], letters[words], LETTERS)
