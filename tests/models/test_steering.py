"""Generation with words that are never drawn and with a penalty of repetitions, against the distribution itself."""

import keras
import numpy as np
import pytest

from tests.support.tiny import VOCABULARY, language_model

DRAWS = 4_000


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    return language_model()


@pytest.fixture(scope="module")
def log_probs(model):
    return model.predict(np.array([[2, 5, 6]]), verbose=0)[0].astype("float64")


def shares(ids):
    return np.bincount(ids, minlength=VOCABULARY) / len(ids)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_other_words_keep_their_ratios(model, log_probs, temperature):
    """The most probable word is forbidden, and a word of a tail."""
    forbidden = [int(np.argmax(log_probs)), VOCABULARY - 1]
    prompts = np.repeat([[2, 5, 6]], DRAWS, axis=0)
    free, steered = (model.generate(prompts, 1, temperature, seed=1, forbid=forbid)[:, 0] for forbid in ([], forbidden))
    expected = np.exp(log_probs / temperature)
    expected[forbidden] = 0
    expected /= expected.sum()
    assert np.abs(shares(steered) - expected).max() < 4 * 0.5 / np.sqrt(DRAWS)
    assert not np.isin(steered, forbidden).any()
    if temperature == 1:  # only rows that drew a forbidden word draw again
        np.testing.assert_array_equal(free != steered, np.isin(free, forbidden))


@pytest.mark.parametrize("how", [{"temperature": 0}, {"top_k": 1}, {"top_p": 1e-6}], ids=str)
def test_the_best_word_that_is_allowed(model, log_probs, how):
    first, second, third = np.argsort(-log_probs)[:3]
    for forbid, best in (([], first), ([first], second), ([first, second], third)):
        assert model.generate([[2, 5, 6]], 1, **how, forbid=forbid)[0, 0] == best


def test_a_penalty_divides_the_probabilities_of_words_that_the_row_contains(model, log_probs):
    """Every row has its own length. The `</s>` at its beginning does not count."""
    penalty, rows = 1.5, [[2, 5, 6], [2, 5, 6, 7, 7]]
    found = model.generate(rows, 1, temperature=0, repetition_penalty=penalty)[:, 0]
    for row, best in zip(rows, found):
        scores = model.predict(np.array([row]), verbose=0)[0] * np.where(
            np.isin(np.arange(VOCABULARY), row[1:]), penalty, 1
        )
        assert best == np.argmax(scores)
    long = model.generate([[2]], 9, temperature=0, repetition_penalty=1e6)[0]
    assert len(set(long[long != 2])) == len(long[long != 2])


def test_any_of_several_words_ends_a_row(model):
    whole = model.generate([[2, 5, 6]], 12, seed=1)[0]
    first = min(np.flatnonzero(whole == whole[3])[0], np.flatnonzero(whole == whole[5])[0])
    stopped = model.generate([[2, 5, 6]], 12, seed=1, stop=[whole[3], whole[5]])[0]
    np.testing.assert_array_equal(stopped[: first + 1], whole[: first + 1])
    assert (stopped[first + 1 :] == 1).all()  # padding


def test_a_stop_word_of_a_longer_prompt_does_not_end_its_row(model):
    """A batch first generates from its shortest prompt; the rest of a longer prompt is not drawn."""
    prompts = [[2, 5], [2, 5, 9, 6]]
    alone = model.generate([prompts[1]], 3, temperature=0)[0]
    together = model.generate(prompts, 3, temperature=0, stop=9)[1]
    stop = np.flatnonzero(alone == 9)
    end = stop[0] + 1 if len(stop) else len(alone)
    np.testing.assert_array_equal(together[:end], alone[:end])
