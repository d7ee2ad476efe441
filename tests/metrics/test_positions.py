"""Probabilities by position, of texts so short that every position can be seen."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.metrics import positions_after, probability_by_length, probability_by_position

pytestmark = pytest.mark.once


def arrays(text):
    """Returns (losses, spaces, letters) of a text, whose character at place i has the probability 1 / (i + 1)."""
    spaces, letters = [one == " " for one in text], [one.isalpha() for one in text]
    return np.log(np.arange(1.0, len(text) + 1)), np.array(spaces, bool), np.array(letters, bool)


@pytest.mark.parametrize(
    "text, positions",
    [
        ("ab c", [1, 2, 3, 1]),
        (" ab", [1, 1, 2]),
        ("a   b ", [1, 2, 1, 1, 1, 2]),
        ("abc", [1, 2, 3]),
        ("", []),
    ],
)
def test_positions_begin_after_each_mark(text, positions):
    assert positions_after(arrays(text)[1]).tolist() == positions
    assert positions_after([one == " " for one in text]).tolist() == positions


def test_probabilities_are_means_not_of_losses():
    nll = -np.log([0.5, 0.25, 1.0, 0.125])
    assert probability_by_position(nll, [1, 3, 3, 4], longest=3) == [
        {"position": 1, "tokens": 1, "probability": pytest.approx(0.5)},
        {"position": 3, "tokens": 2, "probability": pytest.approx(0.625)},
    ]
    assert probability_by_position([], np.array([], int), longest=3) == []


def test_words_are_letters_between_spaces_and_the_space_after_them():
    """The words of two letters begin at 0 and 21, and the word of three at 10; nothing follows "jk"."""
    text = "it  a cd, efg x1 y   hi jk"
    nll, spaces, letters = arrays(text)
    two = np.mean([[1 / (start + place + 1) for place in range(3)] for start in (0, 21)], axis=0)
    three = [1 / (10 + place + 1) for place in range(4)]
    assert probability_by_length(nll, spaces, letters, longest=5) == [
        {"length": 2, "words": 2, "probability": pytest.approx(two.tolist())},
        {"length": 3, "words": 1, "probability": pytest.approx(three)},
    ]
    assert [found["length"] for found in probability_by_length(nll, spaces, letters, longest=2)] == [2]


@given(st.text(" ab,", max_size=40))
def test_the_same_words_are_found_by_a_regular_expression(text):
    nll, spaces, letters = arrays(text)
    probabilities = {}
    for match in re.finditer(r"(?<![^ ])([ab]{2,}) ", text):
        places = np.arange(match.start(), match.end())
        probabilities.setdefault(len(match[1]), []).append(1 / (places + 1))
    expected = [
        {"length": length, "words": len(rows), "probability": pytest.approx(np.mean(rows, axis=0).tolist())}
        for length, rows in sorted(probabilities.items())
    ]
    assert probability_by_length(nll, spaces, letters, longest=40) == expected
