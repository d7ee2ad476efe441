import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.data import EOS, PAD, StreamBatches

pytestmark = pytest.mark.once


def distinct(size):
    """A text in which each token tells its position, from 10 on."""
    return np.arange(10, 10 + size)


def epoch(batches, number=0):
    return list(batches.batches(number * len(batches), (number + 1) * len(batches)))


def lengths(batches, number=0):
    return [targets.shape[1] for _, targets, _ in epoch(batches, number)]


SIZES = {"size": st.integers(1, 400), "rows": st.integers(1, 9), "bptt": st.integers(5, 40)}


@given(**SIZES, number=st.integers(0, 2), shuffle=st.booleans())
def test_every_row_is_a_stream_without_gaps(size, rows, bptt, number, shuffle):
    """Over the batches of an epoch; all rows together are the text, and each input is the token before its target."""
    tokens = distinct(max(size, rows))
    data = epoch(StreamBatches(tokens, bptt, rows, seed=3, shuffle=shuffle), number)
    inputs, begins, targets, weights = (
        np.concatenate(parts, axis=-1)
        for parts in zip(*((inputs, begins[:, None], targets, weights) for (inputs, begins), targets, weights in data))
    )
    np.testing.assert_array_equal(targets[weights > 0], tokens)
    np.testing.assert_array_equal(inputs[weights > 0], [EOS, *tokens[:-1]])
    assert (weights[:, :-1] == 1).all() and (inputs[weights == 0] == PAD).all() and (targets[weights == 0] == PAD).all()
    np.testing.assert_array_equal(begins, np.broadcast_to(np.arange(len(data)) == 0, begins.shape))
    assert StreamBatches(tokens, bptt, rows, seed=3).tokens_per_epoch == len(tokens)


def test_types_and_shapes():
    batches = StreamBatches(distinct(90).astype(np.uint16), 8, 3, seed=1, shuffle=False)
    (inputs, begins), targets, weights = batches.batch(1)
    assert (inputs.dtype, begins.dtype, targets.dtype, weights.dtype) == (np.int32, bool, np.int32, np.float32)
    assert inputs.shape == targets.shape == weights.shape == (3, 8) and begins.shape == (3,)
    assert batches.stream_rows == 3 and lengths(batches) == [8, 8, 8, 6]


def test_a_batch_is_a_function_of_seed_and_update():
    tokens = distinct(2000)

    def flat(batches, t):
        (inputs, begins), *rest = batches.batch(t)
        return [inputs, begins, *rest, batches.rate_factor(t)]

    straight = StreamBatches(tokens, 30, 4, seed=3)
    expected = [flat(straight, t) for t in range(3 * len(straight))]
    for t in (2 * len(straight) + 1, 0, len(straight), 5):
        for batches in (straight, StreamBatches(tokens, 30, 4, seed=3)):
            for found, array in zip(flat(batches, t), expected[t], strict=True):
                np.testing.assert_array_equal(found, array)


def test_the_lengths_of_an_epoch_are_few_and_as_in_the_paper():
    """Mean and standard deviation of N(base, 5), with half the base in a twentieth of the batches."""
    batches = StreamBatches(np.zeros(700_000, np.uint8), 70, 1, seed=1)
    found = np.array(lengths(batches))
    assert set(found[:-1]) == {61, 70, 79, 26, 35, 44} and found[-1] <= 79
    whole, halved = found[:-1][found[:-1] > 50], found[:-1][found[:-1] < 50]
    assert len(halved) / len(found) == pytest.approx(0.05, abs=0.005)
    for part, mean in ((whole, 70), (halved, 35)):
        assert part.mean() == pytest.approx(mean, abs=0.5) and part.std() == pytest.approx(5, abs=0.5)


def test_short_batches_have_five_tokens_at_least():
    assert min(lengths(StreamBatches(distinct(9000), 6, 1, seed=1))[:-1]) == 5


def test_every_epoch_and_seed_cuts_at_other_places():
    one, other = (StreamBatches(distinct(3000), 20, 2, seed=seed) for seed in (1, 2))
    assert sorted(lengths(one)) == sorted(lengths(one, 1)) and lengths(one) != lengths(one, 1)
    assert lengths(one) != lengths(other)


def test_the_rate_follows_the_length():
    batches = StreamBatches(distinct(3000), 20, 2, seed=1)
    for t in (0, 1, len(batches) - 1, len(batches) + 2):
        assert batches.rate_factor(t) == batches.batch(t)[1].shape[1] / 20


def test_rows_that_are_reset_are_as_many_as_the_rate_says():
    """Other rows in every epoch, and no others in the parts of a batch than in the whole."""
    batches = StreamBatches(distinct(60_000), 10, 8, seed=1, reset_rate=0.1)
    first, second = (np.stack([begins for (_, begins), _, _ in epoch(batches, number)]) for number in (0, 1))
    assert first[0].all() and second[0].all()
    assert first[1:].mean() == pytest.approx(0.1, abs=0.02) and (first != second).any()
    assert (first[1:].any(axis=1) & ~first[1:].all(axis=1)).any()  # each row for itself
    parts = [batches.batch(5, (number, 3))[0][1] for number in range(3)]
    np.testing.assert_array_equal(np.concatenate(parts), [*first[5], False])


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_a_reset_rate_outside_its_range(rate):
    with pytest.raises(ValueError, match="`reset_rate` must be at least 0 and below 1. Received: reset_rate="):
        StreamBatches(distinct(90), 10, 2, seed=1, reset_rate=rate)
