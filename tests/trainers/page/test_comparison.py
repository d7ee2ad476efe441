"""Comparison of runs word by word."""

import math

import numpy as np
import pytest

from tests.support.text import NASTY
from trainers.page import comparison

pytestmark = pytest.mark.once

PAIRS = [("words", "cnn"), ("words", "letters"), ("bytes", "others"), ("pieces", "letters"), ("pieces", "others")]
TEXT = ["word1 word2, word3", "", "   ", " word2  word1 ", "é\u2028ab", "word1"]


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_no_bit_is_lost(post, page, pair):
    """The bits of all words are those of all tokens, whatever the tokens are."""
    text = "\n".join([*TEXT, *NASTY])
    answer = post("compare", runs=list(pair), text=text)
    assert answer["runs"] == list(pair)
    number = len(answer["words"])
    for place, run in enumerate(pair):
        bits = sum(word["bits"][place] for word in answer["words"])
        lines = list(page.runs[run].score(text, math.inf))
        expected = -sum(line["log_prob"] for line in lines) / math.log(2)
        assert bits == pytest.approx(expected, rel=1e-5)
        assert answer["reading"][place] == " or ".join(dict.fromkeys(line["reading"] for line in lines))
        assert answer["perplexity"][place] == pytest.approx(2 ** (bits / number), rel=1e-5)
    assert sum(word["text"] == "\n" for word in answer["words"]) == len(TEXT) + len(NASTY)


def test_words_lie_between_white_space_where_tokenizers_differ(post):
    answer = post("compare", runs=["words", "letters"], text="word1, word2\n word3")
    assert [word["text"] for word in answer["words"]] == ["word1,", "word2", "\n", "word3", "\n"]
    assert [word["count"] for word in answer["words"]] == [0, 1000 - 120, None, 1000 - 180, None]
    assert [word["unknown"] for word in answer["words"]] == [True, True, False, True, False]  # no digits in "letters"


def test_words_are_those_of_the_tokenizer_where_runs_have_the_same(post):
    answer = post("compare", runs=["others", "pieces"], text="word1, word2")
    assert [word["text"] for word in answer["words"]] == ["word1", ",", "word2", "\n"]
    assert [word["count"] for word in answer["words"]] == [1000 - 60, 0, 1000 - 120, None]


def test_the_white_space_of_characters_belongs_to_the_word_before(post, page):
    (line,) = page.runs["letters"].score(" ab  cd", math.inf)
    bits = [-value / math.log(2) for value in line["log_probs"]]
    answer = post("compare", runs=["letters", "words"], text=" ab  cd")
    expected = [sum(bits[:5]), sum(bits[5:7]), bits[7]]
    np.testing.assert_allclose([word["bits"][0] for word in answer["words"]], expected, rtol=1e-6)


def test_losses_by_frequency(post):
    answer = post("compare", runs=["words", "cnn"], text="word1 word2 word9 worda word1 other\nword1")
    words = [word for word in answer["words"] if word["text"] != "\n"]
    assert sum(part["words"] for part in answer["by_frequency"]) == len(words) == 7
    assert [(part["from"], part["to"]) for part in answer["by_frequency"]] == [(0, 1), (100, None)]
    rare, frequent = answer["by_frequency"]
    np.testing.assert_allclose(rare["bits"], words[5]["bits"])
    np.testing.assert_allclose(frequent["bits"], np.mean([w["bits"] for w in words if w["count"]], axis=0))


def test_runs_without_words_have_no_frequencies(post):
    answer = post("compare", runs=["letters", "bytes"], text="ab cd")
    assert answer["by_frequency"] == [] and all(word["count"] is None for word in answer["words"])


def test_a_run_can_be_compared_with_itself(post):
    answer = post("compare", runs=["words", "words"], text="word1")
    assert all(first == second for first, second in (word["bits"] for word in answer["words"]))


def test_chunks_make_up_the_line_in_linear_time():
    for line in (" a b  c ", "a", "\u2028\x85x", " " * 20_000 + "a" + " " * 20_000):
        assert "".join(comparison.CHUNK.findall(line)) == line
    assert comparison.CHUNK.findall(" " * 20_000) == []
