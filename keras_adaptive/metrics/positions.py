"""Probability of the right token by its position."""

import numpy as np


def positions_after(marks):
    """Returns the position of each token after the last mark before it: 1 for the first token after a mark.

    A mark has a position too, after the mark before it. The text begins as after a mark.

    Example:

    >>> marks = [character == " " for character in "it  is so"]
    >>> positions_after(marks).tolist()
    [1, 2, 3, 1, 1, 2, 3, 1, 2]
    """
    places = np.arange(len(marks))
    last = np.maximum.accumulate(np.where(marks, places, -1))
    return places - np.append(-1, last)[:-1]


def probability_by_position(nll, positions, longest):
    """Returns the mean probability of the right token at each position.

    Reference:
        Merity, Keskar and Socher, An Analysis of Neural Language Modeling at Multiple Scales, 2018, figure 1.

    Args:
        nll: Negative log-likelihood of each token, in nats, `(tokens,)`.
        positions: Position of each token, `(tokens,)`, from 1; see `positions_after`.
        longest: Last position to return.

    Returns:
        A list of dicts: `position`, the number of `tokens` there, and their mean `probability`. Positions without a
        token are left out.
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


def probability_by_length(nll, spaces, letters, longest):
    """Returns the mean probability of each character of the words of each length, and of the space after them.

    A word is two or more letters between spaces; the text begins as after a space. The last probability is that of the
    space, with which the word could have gone on instead.

    Reference:
        Merity, Keskar and Socher, An Analysis of Neural Language Modeling at Multiple Scales, 2018, figure 2.

    Args:
        nll: Negative log-likelihood of each character, in nats, `(characters,)`.
        spaces: Whether each character separates words, `(characters,)`.
        letters: Whether each character is a letter of a word, `(characters,)`.
        longest: Number of letters of the longest words to return.

    Returns:
        A list of dicts, from short to long: `length`, the number of `words` of that length, and `probability`, a list
        of `length` + 1 means. Lengths without a word are left out.

    Example:

    >>> text = np.array(list("to be, or "))
    >>> nll = np.where(text == "t", np.log(2), 0.0)
    >>> probability_by_length(nll, text == " ", np.char.isalpha(text), longest=9)
    [{'length': 2, 'words': 2, 'probability': [0.75, 1.0, 1.0]}]
    """
    probability = np.exp(-np.asarray(nll, np.float64))
    spaces, letters = np.asarray(spaces, bool), np.asarray(letters, bool)
    lengths = positions_after(spaces) - 1  # of what lies between each character and the space before it
    of_letters = lengths == positions_after(~letters) - 1
    found = []
    for length in range(2, longest + 1):
        ends = np.flatnonzero(spaces & of_letters & (lengths == length))
        if len(ends):
            means = probability[ends[:, None] + np.arange(-length, 1)].mean(axis=0)
            found.append({"length": length, "words": len(ends), "probability": means.tolist()})
    return found
