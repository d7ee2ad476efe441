"""Passages from a corpus, for the prediction of their last word."""

import numpy as np

from keras_adaptive.data.codecs.vocabulary import Vocabulary
from keras_adaptive.data.corpus import Corpus
from keras_adaptive.special_words import EOS, SPECIAL_WORDS, UNK

END_MARKS = (".", "!", "?")
ABBREVIATIONS = "capt col dr esq etc gen hon jr lieut messrs mr mrs ms prof rev sr st viz vol vs".split()
TIMES, GAP = 2, 50  # a target with a broad context occurs this often before, and last this many words before


def draw_passages(
    corpus: Corpus, split: str, count: int, *, broad: bool = False, length: int = 200, seed: int = 0
) -> list[list[str]]:
    """Draws random passages that end with the last word of a sentence.

    A passage begins with a sentence. It has between `length` and twice as many words, including punctuation and ends of
    lines. Its last word, the target, is a word of the vocabulary with at least two characters and a letter, and is
    followed by `.`, `!` or `?`. A point after an abbreviation such as `Mr` does not end a sentence. A target is drawn
    at most once; the contexts of two targets may overlap.

    Args:
        corpus: A `Corpus` of words.
        split: "train", "valid" or "test".
        count: Number of passages.
        broad: Whether to draw only targets that need a broad context: the word occurs at least twice before in the
            passage, but not among the 50 words before the target.
        length: Smallest number of words in a passage.
        seed: Integer. A seed gives the same passages on every machine.

    Returns:
        List of passages in the order of the text. Each passage is a list of words, with `</s>` for the end of a line
        and `<unk>` for a word outside the vocabulary.

    Raises:
        ValueError: If the corpus is not a corpus of words, a number is out of its range, or the split has fewer such
            passages.

    Example:

    ```python
    Path("novels").mkdir()
    for split in ("train", "valid", "test"):
        Path(f"novels/{split}.txt").write_text("The cat sat . A dog ran ! " * 9)
    corpus = prepare("novels", "data/novels", min_count=1)
    *context, target = draw_passages(corpus, "test", count=2, length=4, seed=1)[0]
    ```
    """
    least = 1 + GAP + TIMES if broad else 2
    for name, value, lowest in (("count", count, 1), ("length", length, least), ("seed", seed, 0)):
        if value < lowest:
            raise ValueError(f"`{name}` must be at least {lowest}{' with `broad`' * broad}. Received: {name}={value}.")
    if corpus.unit != "word":
        raise ValueError(
            f"Passages are drawn from a corpus of words. Received: {corpus.data_dir}, whose tokens are "
            f"{corpus.unit}s. Prepare the same text as words."
        )
    corpus.verify(split)
    words = np.asarray(corpus.tokens(split))
    starts, targets = passage_bounds(words, corpus.vocabulary, length)
    if broad:
        kept = is_broad(words, starts, targets)
        starts, targets = starts[kept], targets[kept]
    if count > len(targets):
        raise ValueError(
            f"`count` must be at most {len(targets):,}: {split} of {corpus.data_dir} has no more passages of at least "
            f"{length:,} words that end before one of {' '.join(END_MARKS)}{' and need a broad context' * broad}. "
            f"Received: count={count:,}."
        )
    drawn = np.sort(np.random.default_rng(seed).choice(len(targets), count, replace=False))
    return [corpus.vocabulary.decode(words[starts[number] : targets[number] + 1]) for number in drawn]


def passage_bounds(words: np.ndarray, vocabulary: Vocabulary, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first and the last positions of all possible passages of a text; see `draw_passages`."""
    types = vocabulary.words
    is_short = np.array([len(word) == 1 and word.isalpha() or word.lower() in ABBREVIATIONS for word in types])
    is_target = np.array([any(map(str.isalpha, word)) for word in types]) & ~is_short
    is_target[: len(SPECIAL_WORDS)] = False
    marks = [i for i in vocabulary.encode(END_MARKS) if i != UNK]
    is_end = np.isin(words, marks) & ~np.append(False, is_short[words[:-1]])
    targets = np.flatnonzero(is_target[words[:-1]] & is_end[1:])
    targets = targets[targets >= length - 1]
    sentences = np.append(0, 1 + np.flatnonzero(is_end | (words == EOS)))
    starts = sentences[np.searchsorted(sentences, targets - length + 1, side="right") - 1]
    kept = targets - starts < 2 * length
    return starts[kept], targets[kept]


def is_broad(words: np.ndarray, starts: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns whether each target occurs at least twice before in its passage, but not among the last 50 words.

    `words` (words,) are the ids of a text; `starts` and `targets` (passages,) are the first and the last positions.

    Example:

    >>> words = np.array([7, 7, *range(100, 150), 7, 7])
    >>> is_broad(words, starts=np.array([0, 0, 1]), targets=np.array([52, 53, 52]))
    array([ True, False, False])
    """
    order = np.argsort(words, kind="stable")
    same = words[order[1:]] == words[order[:-1]]
    previous = np.full(len(words) + 1, -1)  # position of the previous occurrence of each word; -1 maps to itself
    previous[order[1:][same]] = order[:-1][same]
    earlier = last = previous[targets]
    for _ in range(TIMES - 1):
        earlier = previous[earlier]
    return (last < targets - GAP) & (earlier >= starts)
