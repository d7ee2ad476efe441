"""Probability of the correct token by its position."""

import numpy as np
from numpy.typing import ArrayLike


def positions_after(marks: ArrayLike) -> np.ndarray:
    """Returns the number of tokens from the preceding mark to each token: 1 for the first token after a mark.

    A mark is counted from the mark before it. The text begins as if a mark preceded it.

    Args:
        marks: Whether each token is a mark, such as a space, `(tokens,)`.

    Returns:
        An integer array `(tokens,)`.

    Example:

    >>> marks = [character == " " for character in "it  is so"]
    >>> positions_after(marks).tolist()
    [1, 2, 3, 1, 1, 2, 3, 1, 2]
    """
    places = np.arange(np.size(marks))
    last = np.maximum.accumulate(np.where(marks, places, -1))
    return places - np.append(-1, last)[:-1]


def probability_by_position(nll: ArrayLike, positions: ArrayLike, longest: int) -> list[dict]:
    """Returns the mean probability of the correct token at each position.

    Args:
        nll: Negative log-likelihood of each token in nats, `(tokens,)`.
        positions: Position of each token, counted from 1, `(tokens,)`; see `positions_after`.
        longest: Last position to return.

    Returns:
        A list of dicts: `position`, the number of `tokens` there, and their mean `probability`. Positions without a
        token are omitted.

    Reference:
        Merity, Keskar and Socher, An Analysis of Neural Language Modeling at Multiple Scales, 2018, figure 1.

    Example:

    >>> probability_by_position(np.log([2, 4, 8, 2]), positions=[1, 2, 1, 3], longest=2)
    [{'position': 1, 'tokens': 2, 'probability': 0.3125}, {'position': 2, 'tokens': 1, 'probability': 0.25}]
    """
    nll, positions = np.asarray(nll, np.float64), np.asarray(positions)
    counted = positions <= longest
    positions, probability = positions[counted], np.exp(-nll[counted])
    tokens = np.bincount(positions, minlength=longest + 1)
    sums = np.bincount(positions, probability, minlength=longest + 1)
    return [
        {"position": position, "tokens": int(number), "probability": float(total / number)}
        for position, (number, total) in enumerate(zip(tokens, sums))
        if number
    ]


def probability_by_length(nll: ArrayLike, spaces: ArrayLike, letters: ArrayLike, longest: int) -> list[dict]:
    """Returns the mean probability of each character in words of each length, and of the space that follows.

    A word is two or more letters between spaces. The text begins as if a space preceded it. The last probability of a
    length belongs to the space: it shows how certain the model is that the word ends.

    Args:
        nll: Negative log-likelihood of each character in nats, `(characters,)`.
        spaces: Whether each character separates words, `(characters,)`.
        letters: Whether each character is a letter of a word, `(characters,)`.
        longest: Number of letters of the longest words to return.

    Returns:
        A list of dicts, from short to long words: `length`, the number of `words` of that length, and `probability`, a
        list of `length` + 1 means. Lengths without a word are omitted.

    Reference:
        Merity, Keskar and Socher, An Analysis of Neural Language Modeling at Multiple Scales, 2018, figure 2.

    Example:

    >>> text = np.array(list("to be, or "))
    >>> nll = np.where(text == "t", np.log(2), 0.0)
    >>> probability_by_length(nll, text == " ", np.char.isalpha(text), longest=9)
    [{'length': 2, 'words': 2, 'probability': [0.75, 1.0, 1.0]}]
    """
    probability = np.exp(-np.asarray(nll, np.float64))
    spaces, letters = np.asarray(spaces, bool), np.asarray(letters, bool)
    lengths = positions_after(spaces) - 1  # number of characters since the preceding space
    of_letters = lengths == positions_after(~letters) - 1  # whether all of them are letters
    result = []
    for length in range(2, longest + 1):
        ends = np.flatnonzero(spaces & of_letters & (lengths == length))
        if len(ends):
            means = probability[ends[:, None] + np.arange(-length, 1)].mean(axis=0)
            result.append({"length": length, "words": len(ends), "probability": means.tolist()})
    return result
