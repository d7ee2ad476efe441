import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.data import (
    EOS,
    PAD,
    BlockBatches,
    ContextWindows,
    SentenceBatches,
    StagedBatches,
    StreamBatches,
)
from tests.support.refusals import refused

pytestmark = pytest.mark.once

STREAM = st.lists(st.integers(2, 9), min_size=1, max_size=60).map(lambda ids: np.array(ids, np.uint16))


def distinct(size):
    """A stream without `</s>` in which each token tells its position, from 10 on."""
    return np.arange(10, 10 + size)


def lines():
    """Returns the same tokens in lines of 1 to 24 tokens."""
    tokens = distinct(300)
    tokens[np.cumsum(np.arange(24)) % 300] = EOS
    return tokens


def make(kind, tokens, seed=3, shuffle=True):
    if kind == "blocks":
        return BlockBatches(tokens, min(4, len(tokens)), 3, seed=seed, shuffle=shuffle)
    return SentenceBatches(tokens, 48, seed=seed, max_length=20, shuffle=shuffle)


def epoch(batches, number=0):
    return list(batches.batches(number * len(batches), (number + 1) * len(batches)))


def scored(batches, number=0):
    return np.concatenate([targets[weights > 0] for _, targets, weights in epoch(batches, number)])


both = pytest.mark.parametrize("kind", ["blocks", "sentences"])


@both
@given(tokens=STREAM, number=st.integers(0, 2), shuffle=st.booleans())
def test_every_token_is_scored_once_an_epoch(kind, tokens, number, shuffle):
    batches = make(kind, tokens, shuffle=shuffle)
    assert sorted(scored(batches, number)) == sorted(tokens)
    assert batches.tokens_per_epoch == len(tokens)


@both
def test_inputs_are_targets_shifted_by_one_over_the_stream(kind):
    tokens = lines()
    before = dict(zip(tokens.tolist(), [EOS, *tokens[:-1].tolist()], strict=True))
    for inputs, targets, weights in epoch(make(kind, tokens)):
        for i, target in zip(inputs[weights > 0], targets[weights > 0], strict=True):
            assert target == EOS or i == before[int(target)]
        assert (inputs[weights == 0] == PAD).all() and (targets[weights == 0] == PAD).all()


@both
def test_types_and_shapes(kind):
    inputs, targets, weights = make(kind, distinct(20).astype(np.uint16)).batch(0)
    assert (inputs.dtype, targets.dtype, weights.dtype) == (np.int32, np.int32, np.float32)
    assert inputs.shape == targets.shape == weights.shape == ((3, 4) if kind == "blocks" else (2, 20))


@both
def test_a_batch_is_a_function_of_seed_and_update(kind):
    tokens = lines()
    straight = make(kind, tokens)
    expected = [straight.batch(t) for t in range(3 * len(straight))]
    for t in (2 * len(straight) + 1, 0, len(straight), 5):
        np.testing.assert_array_equal(make(kind, tokens).batch(t), expected[t])
        np.testing.assert_array_equal(straight.batch(t), expected[t])


@both
def test_order_changes_with_epoch_and_seed_unless_not_shuffled(kind):
    tokens = lines()
    first, second = scored(make(kind, tokens)), scored(make(kind, tokens), 1)
    other = scored(make(kind, tokens, seed=4))
    assert (first != second).any() and (first != other).any() and (second != other).any()
    plain = make(kind, tokens, shuffle=False)
    np.testing.assert_array_equal(scored(plain), scored(plain, 1))


@both
def test_batches_start_and_stop_anywhere(kind):
    batches = make(kind, distinct(100))
    some = list(batches.batches(3, 6))
    endless = list(itertools.islice(batches.batches(3), 3))
    for t, a, b in zip((3, 4, 5), some, endless, strict=True):
        np.testing.assert_array_equal(a, batches.batch(t))
        np.testing.assert_array_equal(b, batches.batch(t))


def test_blocks_in_order_with_padding():
    batches = BlockBatches(distinct(10), length=4, batch_size=2, seed=0, shuffle=False)
    (inputs, targets, weights), (last_inputs, last_targets, last_weights) = epoch(batches)
    assert inputs.tolist() == [[EOS, 10, 11, 12], [13, 14, 15, 16]]
    assert targets.tolist() == [[10, 11, 12, 13], [14, 15, 16, 17]]
    assert last_inputs.tolist() == [[17, 18, PAD, PAD], [PAD] * 4]
    assert last_targets.tolist() == [[18, 19, PAD, PAD], [PAD] * 4]
    assert weights.sum() == 8 and last_weights.tolist() == [[1, 1, 0, 0], [0] * 4]


@given(size=st.integers(5, 80), length=st.integers(1, 5), batch_size=st.integers(1, 4))
def test_blocks_have_one_shape(size, length, batch_size):
    batches = BlockBatches(distinct(size), length, batch_size, seed=1)
    blocks = -(-size // length)
    assert len(batches) == -(-blocks // batch_size)
    assert {array.shape for batch in epoch(batches) for array in batch} == {(batch_size, length)}


def test_a_sentence_begins_after_the_end_of_the_last_one():
    batches = SentenceBatches(np.array([7, 8, EOS, 9, EOS]), 16, seed=0, max_length=8, shuffle=False)
    inputs, targets, weights = batches.batch(0)
    assert len(batches) == 1
    assert inputs.tolist() == [[EOS, 7, 8] + [PAD] * 5, [EOS, 9] + [PAD] * 6]
    assert targets.tolist() == [[7, 8, EOS] + [PAD] * 5, [9, EOS] + [PAD] * 6]
    assert weights.tolist() == [[1, 1, 1] + [0] * 5, [1, 1] + [0] * 6]


def test_long_sentences_are_cut():
    batches = SentenceBatches(distinct(20), 8, seed=0, max_length=8, shuffle=False)
    rows = [targets[0].tolist() for _, targets, _ in epoch(batches)]
    assert rows == [[*range(10, 18)], [*range(18, 26)], [*range(26, 30)] + [PAD] * 4]
    assert batches.batch(1)[0][0, 0] == 17


def test_lengths_are_mixed_unless_not_shuffled():
    lengths = [inputs.shape[1] for inputs, _, _ in epoch(make("sentences", lines()))]
    plain = [inputs.shape[1] for inputs, _, _ in epoch(make("sentences", lines(), shuffle=False))]
    assert set(lengths) == {8, 12, 16, 20} and lengths != sorted(lengths) == plain


@given(sizes=st.lists(st.integers(0, 70), min_size=1))
def test_sentences_meet_others_of_their_length_in_few_shapes(sizes):
    tokens = np.concatenate([[*range(10, 10 + size), EOS] for size in sizes])
    batches = SentenceBatches(tokens, 200, seed=0, max_length=50)
    for _, _, weights in epoch(batches):
        rows, length = weights.shape
        assert length in (8, 12, 16, 24, 32, 48, 50)
        assert rows == 200 // length
        used = weights.sum(axis=1)[weights.any(axis=1)]
        assert length == 8 or (used > length * 0.6).all()


USUAL = {
    BlockBatches: {"length": 3, "batch_size": 1, "seed": 0},
    SentenceBatches: {"tokens_per_batch": 16, "seed": 0, "max_length": 8},
    StreamBatches: {"bptt": 5, "batch_size": 2, "seed": 0},
    ContextWindows: {"block": 4, "context": 4},
}


@pytest.mark.parametrize(
    "cls, arguments, message",
    [
        (BlockBatches, {"length": 0}, r"number of tokens \(9\). Received: length=0"),
        (BlockBatches, {"length": 10}, r"number of tokens \(9\). Received: length=10"),
        (BlockBatches, {"batch_size": 0}, "`batch_size` must be positive"),
        (BlockBatches, {"seed": -1}, "`seed` must not be negative. Received: seed=-1"),
        (SentenceBatches, {"seed": -1}, "`seed` must not be negative. Received: seed=-1"),
        (SentenceBatches, {"tokens_per_batch": 7}, r"at least `max_length` \(8\). Received: tokens_per_batch=7"),
        (SentenceBatches, {"max_length": 0}, "must be positive. Received: max_length=0"),
        (SentenceBatches, {"tokens": []}, "must not be empty"),
        (StreamBatches, {"bptt": 4}, "`bptt` must be at least 5 tokens. Received: bptt=4"),
        (StreamBatches, {"batch_size": 0}, r"from 1 to the number of tokens \(9\). Received: batch_size=0"),
        (StreamBatches, {"batch_size": 10}, r"tokens \(9\). Received: batch_size=10. Use fewer streams"),
        (StreamBatches, {"seed": -1}, "`seed` must not be negative"),
        (ContextWindows, {"block": 0}, "Received: block=0"),
        (ContextWindows, {"context": -1}, "context=-1"),
        (ContextWindows, {"batch_size": 0}, "batch_size=0"),
        (ContextWindows, {"tokens": []}, "must not be empty"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(cls, arguments, message):
    refused(cls, **{"tokens": distinct(9), **USUAL[cls], **arguments}, match=message)


def test_stages_have_rows_of_one_length_and_updates():
    streams, blocks = StreamBatches(distinct(40), 5, 4, seed=1), BlockBatches(distinct(40), 4, 2, seed=1)
    for stages in ([], [(blocks, 2), (streams, None)]):
        refused(StagedBatches, stages, match="`stages` must be batches of rows of one length each")
    for updates in (0, -3, None):
        refused(StagedBatches, [(blocks, updates), (blocks, None)], match="All stages but the last need updates")


def test_stages_are_functions_of_seed_and_update():
    stages = [(BlockBatches(distinct(40), length, 24 // length, seed=5), 3) for length in (4, 6, 12)]
    batches = StagedBatches(stages)
    assert batches.stage_ends == (3, 6) and len(batches) == len(stages[-1][0])
    for update in (7, 0, 3, 2, 5, 6, 100):
        stage = min(update // 3, 2)
        for one, other in zip(batches.batch(update), stages[stage][0].batch(update - 3 * stage), strict=True):
            np.testing.assert_array_equal(one, other)
