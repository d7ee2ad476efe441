"""Probabilities by position in corpora whose texts are so short that every position can be seen."""

import numpy as np
import pytest

from keras_adaptive.data import UNK
from keras_adaptive.evaluation import by_length, by_position
from tests.support.text import prepared

pytestmark = pytest.mark.once

TEXT = "it naïve\nThe  on\n\nI\tsee\xa0it, "  # the last line ends, too


def evaluated(folder, text, **arguments):
    """Returns (losses, word ids, corpus) of a text, whose word at place i has the probability 1 / (i + 1)."""
    corpus = prepared(folder, text, **arguments)
    words = np.asarray(corpus.words("valid"))
    return np.log(np.arange(1.0, len(words) + 1)), words, corpus


def found(result):
    """{position: the places of the tokens there}, from their number and mean."""
    return {one["position"]: (one["tokens"], pytest.approx(one["probability"])) for one in result}


def of_places(places):
    return {position: (len(at), np.mean([1 / (place + 1) for place in at])) for position, at in places.items()}


OF_CHARACTERS = {1: [0, 3, 9, 14, 18, 20, 24], 2: [1, 4, 10, 15, 21, 25], 3: [5, 11, 22, 26], 4: [6], 5: [7]}
OF_BYTES = {1: [0, 3, 10, 15, 19, 21], 2: [1, 4, 11, 16, 22], 3: [5, 12, 23], 4: [6, 24], 5: [7, 25]}
OF_BYTES |= {6: [8, 26], 7: [27], 8: [28]}


@pytest.mark.parametrize("unit, places", [("characters", OF_CHARACTERS), ("bytes", OF_BYTES)])
def test_characters_and_bytes_by_their_position_in_the_word(tmp_path, unit, places):
    """Each byte has a position, and the white space of bytes is that of ASCII."""
    assert found(by_position(*evaluated(tmp_path, TEXT, tokenizer=unit))) == of_places(places)


@pytest.mark.parametrize("unit, begins", [("characters", {2: [0, 14], 3: [9, 20]}), ("bytes", {2: [0, 15], 3: [10]})])
def test_words_of_each_length_with_the_white_space_after_them(tmp_path, unit, begins):
    """These are "it" and "on", which a line end follows, "The", which one precedes, and "see"."""
    result = by_length(*evaluated(tmp_path, TEXT, tokenizer=unit))
    for one, (length, places) in zip(result, begins.items(), strict=True):
        means = (1 / (np.array(places)[:, None] + np.arange(1, length + 2))).mean(axis=0)
        assert one == {"length": length, "words": len(places), "probability": pytest.approx(means.tolist())}


@pytest.mark.parametrize("unit", ["characters", "bytes"])
def test_an_unknown_character_is_no_letter(tmp_path, unit):
    nll, words, corpus = evaluated(tmp_path, "ab cd ", tokenizer=unit)
    assert [one["words"] for one in by_length(nll, words, corpus)] == [2]
    unknown = np.append(UNK, words[1:])
    assert [one["words"] for one in by_length(nll, unknown, corpus)] == [1]
    assert found(by_position(nll, unknown, corpus)) == of_places({1: [0, 3], 2: [1, 4]})


@pytest.mark.parametrize(
    "text, places",
    [
        ("the cat\nThe dog\nThe The the", {1: [4, 7, 8], 2: [5, 9], 3: [6]}),  # the 0, cat 1, </s> 2, The 3, dog 4, …
        ("a cat The", {1: [3]}),
        ("the cat", {}),
    ],
)
@pytest.mark.parametrize("subwords", [0, 2])
def test_words_by_their_position_after_the_last_the(tmp_path, text, places, subwords):
    evaluation = evaluated(tmp_path, text, subwords=subwords)
    assert found(by_position(*evaluation)) == of_places(places)
    assert by_length(*evaluation) == []


def test_an_unknown_word_is_not_the(tmp_path):
    assert by_position(*evaluated(tmp_path, "a a The cat", min_count=2)) == []


def test_no_more_than_20_positions_and_12_letters(tmp_path):
    evaluation = evaluated(tmp_path, " ".join("a" * length for length in (12, 13, 25)), tokenizer="characters")
    assert list(found(by_position(*evaluation))) == [*range(1, 21)]
    assert [one["length"] for one in by_length(*evaluation)] == [12]
    evaluation = evaluated(tmp_path / "words", "The" + 30 * " a")
    assert list(found(by_position(*evaluation))) == [*range(1, 21)]
