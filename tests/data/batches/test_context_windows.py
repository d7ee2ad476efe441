import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keras_adaptive.data import EOS, PAD, ContextWindows

pytestmark = pytest.mark.once

LINES = st.lists(st.integers(0, 5), min_size=1, max_size=20)


def stream(sizes):
    """Lines of these many distinct words, from 10 on, each with its `</s>`."""
    words = iter(range(10, 10 + sum(sizes)))
    return np.array([token for size in sizes for token in [*(next(words) for _ in range(size)), EOS]])


def rows(windows):
    """The rows of all windows without their padding, as (inputs, targets, weights)."""
    for inputs, targets, weights in windows:
        for i, t, w in zip(inputs, targets, weights, strict=True):
            size = np.flatnonzero(w)[-1] + 1 if w.any() else 0
            assert (i[size:] == PAD).all() and (t[size:] == PAD).all()
            if size:
                yield i[:size], t[:size], w[:size]


@given(LINES, st.integers(1, 9), st.integers(0, 15), st.integers(1, 4), st.booleans())
def test_every_token_is_scored_once_in_order(sizes, block, context, batch_size, by_lines):
    tokens = stream(sizes)
    windows = ContextWindows(tokens, block, context, batch_size=batch_size, by_lines=by_lines)
    batches = list(windows)
    assert len(batches) == len(windows)
    assert {array.shape[0] for batch in batches for array in batch} == {batch_size}
    scored = np.concatenate([targets[weights > 0] for _, targets, weights in batches])
    np.testing.assert_array_equal(scored, tokens)


@given(LINES, st.integers(1, 9), st.integers(0, 15), st.booleans())
def test_context_is_the_text_before_and_not_scored(sizes, block, context, by_lines):
    tokens, start = stream(sizes), 0
    shifted = np.append(EOS, tokens[:-1])
    for inputs, targets, weights in rows(ContextWindows(tokens, block, context, batch_size=2, by_lines=by_lines)):
        stop = start + int(weights.sum())
        before = min(context, start, max(block + context - (stop - start), 0))
        assert weights.tolist() == [0] * before + [1] * (stop - start)
        np.testing.assert_array_equal(targets, tokens[start - before : stop])
        np.testing.assert_array_equal(inputs, shifted[start - before : stop])
        start = stop


@given(LINES, st.integers(1, 9))
@example([1, 1, 2], 4)  # two lines fill a block
def test_blocks_are_whole_lines_as_many_as_fit(sizes, block):
    blocks = [targets for _, targets, _ in rows(ContextWindows(stream(sizes), block, context=0))]
    expected = []
    for size in sizes:
        if expected and expected[-1] + size + 1 <= block:
            expected[-1] += size + 1
        else:
            expected.append(size + 1)
    assert [len(targets) for targets in blocks] == expected


def published_windows(sizes, block, context):
    """The loop of the published evaluation: `[(tokens before, tokens scored)]` of every window."""
    tokens, blocks, previous, windows = stream(sizes).tolist(), [], [], []
    for size in sizes:
        line, tokens = tokens[: size + 1], tokens[size + 1 :]
        if blocks and len(blocks[-1]) + len(line) <= block:
            blocks[-1] += line
        else:
            blocks.append(line)
    for scored in blocks:
        excess = len(scored) + len(previous) - (block + context)
        if excess > 0:
            previous = previous[excess:]
        windows.append((previous, scored))
        previous = (previous + scored)[-context:] if context else []
    return windows


@given(LINES, st.integers(1, 9), st.integers(0, 15))
@example([3, 6, 2, 11], 4, 5)  # lines of 7 and 12: one with a shorter context, one longer than block and context
def test_windows_of_lines_are_the_published_ones(sizes, block, context):
    found = []
    for _, targets, weights in rows(ContextWindows(stream(sizes), block, context, batch_size=2)):
        found.append((targets[weights == 0].tolist(), targets[weights > 0].tolist()))
        assert len(targets) <= max(block + context, int(weights.sum()))
    assert found == published_windows(sizes, block, context)


def test_blocks_of_tokens_take_no_notice_of_lines():
    windows = ContextWindows(stream([2, 5, 1]), block=4, context=2, by_lines=False)
    assert [int(weights.sum()) for _, _, weights in windows] == [4, 4, 3]


def test_few_lengths_and_types():
    tokens = stream([3] * 40 + [30] + [3] * 40)
    lengths = [inputs.shape[1] for inputs, _, _ in ContextWindows(tokens, block=8, context=16)]
    assert sorted(set(lengths)) == [24, 32] and lengths.count(32) == 1
    assert next(iter(ContextWindows(stream([3]), block=512, context=2560)))[0].shape == (1, 8)
    inputs, targets, weights = next(iter(ContextWindows(stream([3]).astype(np.uint16), 4, 4)))
    assert (inputs.dtype, targets.dtype, weights.dtype) == (np.int32, np.int32, np.float32)
