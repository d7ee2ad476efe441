import numpy as np
from keras import ops

from keras_adaptive.models import Reading, decoding
from tests.support.backends import numpy


def counting(calls, read=None):
    """Functions that read and draw, whose words are numbers of tokens so far; they record what they are given."""

    def read_tokens(tokens, state):
        if read is not None:
            read.append(numpy(tokens).copy())
        return state + tokens.shape[1]

    def step(tokens, state, uniform):
        calls.append((numpy(tokens).copy(), state, numpy(uniform).copy()))
        state = state + tokens.shape[1]
        return np.full(len(tokens), state, "int32"), state

    return read_tokens, step


def test_the_prompt_is_read_once_and_every_word_once():
    calls, read, prompt = [], [], np.array([[1, 2, 3], [4, 5, 6]], "int32")
    words = list(decoding.stream(*counting(calls, read), lambda: 0, prompt, length=3, seed=1))
    np.testing.assert_array_equal(np.stack(words, axis=1), [[3, 4, 5]] * 2)
    np.testing.assert_array_equal(np.concatenate([*read, calls[0][0]], axis=1), prompt)
    assert len(read) == 1
    for number, (tokens, state, _) in enumerate(calls[1:], 1):
        np.testing.assert_array_equal(tokens, words[number - 1][:, None])
        assert state == 2 + number


def test_a_long_prompt_goes_in_by_segments(monkeypatch):
    """The draws equal those after a prompt that is read at once."""
    whole, calls, read, prompt = [], [], [], np.arange(18, dtype="int32").reshape(2, 9)
    expected = list(decoding.stream(*counting(whole), lambda: 0, prompt, length=3, seed=1))
    monkeypatch.setattr(decoding, "SEGMENT", 3)
    words = list(decoding.stream(*counting(calls, read), lambda: 0, prompt, length=3, seed=1))
    np.testing.assert_array_equal(words, expected)
    assert [tokens.shape[1] for tokens in read] == [3, 3, 2]
    assert [tokens.shape[1] for tokens, *_ in calls] == [1, 1, 1]
    np.testing.assert_array_equal(np.concatenate([*read, calls[0][0]], axis=1), prompt)
    np.testing.assert_array_equal([uniform for *_, uniform in calls], [uniform for *_, uniform in whole])


def test_segments_have_few_lengths():
    for length in range(1, 1200, 7):
        sizes = [part.stop - part.start for part in decoding.segments(length)]
        assert sum(sizes) == length and {size & (size - 1) for size in sizes} == {0} and max(sizes) <= 128
        assert len(sizes) <= length // 128 + 7
    assert list(decoding.segments(0)) == []


def test_other_results_of_a_step_are_yielded_too():
    def step(tokens, state, uniform):
        return tokens[:, 0] + 1, ops.cast(tokens, "float32"), state

    found = list(decoding.stream(lambda *_: 0, step, lambda: 0, np.array([[5, 1], [6, 2]], "int32"), length=2))
    np.testing.assert_array_equal([ids for ids, _ in found], [[2, 3], [3, 4]])
    np.testing.assert_array_equal([other for _, other in found], [[[1], [2]], [[2], [3]]])
    assert all(isinstance(other, np.ndarray) for _, other in found)


def test_a_sampler_gets_a_long_prompt_by_segments(monkeypatch):
    read, prompt = [], np.arange(8, dtype="int32")[None]

    def step(tokens, state):
        read.append(tokens.shape[1])
        return ops.zeros((1, 9)), ops.cast(tokens, "float32")[..., None], state

    def sampler(next_word, tokens, cache, index, hidden_states):
        np.testing.assert_array_equal(numpy(hidden_states)[0, :index, 0], prompt[0])
        return tokens

    monkeypatch.setattr(decoding, "SEGMENT", 3)
    assert decoding.by_sampler(sampler, step, lambda *_: 0, prompt, 2, Reading()).shape == (1, 2)
    assert read == [3, 3, 1, 1]


def test_draws_follow_the_seed_and_differ_between_rows_and_steps():
    def numbers(seed):
        calls = []
        list(decoding.stream(*counting(calls), lambda: 0, np.zeros((2, 1), "int32"), length=4, seed=seed))
        return np.array([uniform for _, _, uniform in calls])

    first = numbers(1)
    assert first.shape == (4, 3, 2) and first.dtype == "float32"
    assert len(np.unique(first)) == first.size and first.min() >= 0 and first.max() < 1
    np.testing.assert_array_equal(first, numbers(1))
    assert not np.intersect1d(first, numbers(2)).size


def test_words_come_one_by_one():
    calls = []
    words = decoding.stream(*counting(calls), lambda: 0, np.zeros((1, 1), "int32"), length=5, seed=1)
    next(words)
    assert len(calls) == 1


def test_longer_prompts_go_on_while_shorter_ones_are_continued():
    calls, prompts = [], [np.array(one, "int32") for one in ([1], [4, 5, 6], [7, 8])]
    words = np.stack(list(decoding.stream(*counting(calls), lambda: 0, prompts, length=2, seed=1)), axis=1)
    np.testing.assert_array_equal(words, [[1, 2, 3, 4], [5, 6, 3, 4], [8, 2, 3, 4]])
    np.testing.assert_array_equal(calls[0][0], [[1], [4], [7]])
    for number, (tokens, _, _) in enumerate(calls[1:]):
        np.testing.assert_array_equal(tokens[:, 0], words[:, number])
