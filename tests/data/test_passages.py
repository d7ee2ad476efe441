"""Passages against their definition, word by word."""

import numpy as np
import pytest

from keras_adaptive.data import Vocabulary, draw_passages
from keras_adaptive.data.passages import ABBREVIATIONS, END_MARKS, GAP, is_broad, passage_bounds
from tests.support.refusals import refused
from tests.support.text import prepared

pytestmark = pytest.mark.once

LENGTH = 100
VOCABULARY = Vocabulary("<s> <pad> </s> <unk> word . end".split(), range(7))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Words of 150 types with marks, abbreviations, numbers and ends of lines between them, and one long sentence."""
    random = np.random.default_rng(0)
    types = [*(f"w{i}" for i in range(150)), *(12 * [".", "!", "?", "\n"]), *("Mr", "St", "I", "17", "--", "rare")]
    words = [*random.choice(types, 6_000), *3 * [*map(str, range(100))], "end", "."]
    text = " ".join(words) + " unseen .\n"
    return prepared(tmp_path_factory.mktemp("text"), text, train=text.replace(" rare ", " once "))


def ends_sentence(words, place):
    before = words[place - 1] if place else ""
    return words[place] in END_MARKS and not (before.lower() in ABBREVIATIONS or before.isalpha() and len(before) == 1)


def all_passages(words, broad):
    for place, word in enumerate(words[:-1]):
        is_word = word[0] not in "<-1" and not word.isdigit() and word not in (*END_MARKS, "Mr", "St", "I")
        if is_word and words[place + 1] in END_MARKS and place >= LENGTH - 1:
            start = place - LENGTH + 1
            while start and words[start - 1] != "</s>" and not ends_sentence(words, start - 1):
                start -= 1
            before = words[start:place]
            fits = len(before) < 2 * LENGTH
            if fits and (not broad or before.count(word) >= 2 and word not in before[-50:]):
                yield [*before, word]


@pytest.mark.parametrize("broad", [False, True])
def test_all_passages_are_those_of_the_definition(corpus, broad):
    words = corpus.vocabulary.decode(corpus.tokens("test"))
    expected = list(all_passages(words, broad))
    assert len(expected) > 10 and "<unk>" in words
    assert draw_passages(corpus, "test", len(expected), broad=broad, length=LENGTH) == expected
    how = {"broad": broad, "length": LENGTH}
    match = f"`count` must be at most {len(expected)}: test of .* no more passages"
    refused(draw_passages, corpus, "test", len(expected) + 1, **how, match=match)


@pytest.mark.parametrize("begin, kept", [(0, False), (1, True), (10, True), (11, True), (12, False)])
def test_a_passage_has_from_length_to_twice_as_many_words(begin, kept):
    """One target at position 20: its sentence begins after the point before `begin`; length is 10."""
    words = np.full(40, 4)
    words[20], words[21] = 6, 5
    if begin:
        words[begin - 1] = 5
    starts, targets = passage_bounds(words, VOCABULARY, 10)
    found = dict(zip(targets.tolist(), starts.tolist()))
    assert kept == (10 <= 20 - begin + 1 <= 20)
    assert (found.get(20) == begin) == kept  # a sentence that begins too late is preceded by the one before


def test_a_text_of_exactly_the_length_has_a_passage():
    for before, count in ((8, 0), (9, 1)):
        starts, targets = passage_bounds(np.array([*[4] * before, 6, 5]), VOCABULARY, 10)
        assert len(targets) == count and (starts == 0).all()


def test_the_words_just_before_a_target_must_not_be_it():
    """The last occurrence may be 51 words before the target, not 50; the one before it may begin the passage."""
    for distance, broad in ((GAP, False), (GAP + 1, True)):
        words = np.arange(100, 100 + 2 * GAP)
        target = 2 * GAP - 1
        words[[3, target - distance, target]] = 7
        places = np.array([target])
        assert is_broad(words, np.array([3]), places) == [broad]
        assert is_broad(words, np.array([4]), places) == [False]


def test_a_seed_draws_the_same_passages(corpus):
    first, again, other = (draw_passages(corpus, "valid", 20, length=LENGTH, seed=seed) for seed in (1, 1, 2))
    assert first == again != other and len(set(map(tuple, first))) == 20


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"count": 0}, "`count` must be at least 1. Received: count=0"),
        ({"length": 1}, "`length` must be at least 2. Received: length=1"),
        ({"length": 52, "broad": True}, "`length` must be at least 53 with `broad`. Received: length=52"),
        ({"seed": -1}, "`seed` must be at least 0"),
        ({"length": 7_000}, "`count` must be at most 0: test of .* no more passages of at least 7,000 words"),
        ({"split": "tests"}, "`split` must be one of"),
    ],
    ids=str,
)
def test_bad_input(corpus, arguments, message):
    refused(draw_passages, corpus, **{"split": "test", "count": 3, "length": LENGTH, **arguments}, match=message)


@pytest.mark.parametrize(
    "text, how, message",
    [
        ("no sentence has a mark\n", {}, "`count` must be at most 0"),
        ("a line . of words .\n", {"tokenizer": "characters"}, "a corpus of words. Received: .* tokens are characters"),
        (".\n", {}, "`count` must be at most 0"),
    ],
    ids=["no marks", "characters", "one word"],
)
def test_corpora_without_passages(tmp_path, text, how, message):
    corpus = prepared(tmp_path, text, **how)
    for broad in (False, True):
        refused(draw_passages, corpus, "test", 1, broad=broad, match=message)
