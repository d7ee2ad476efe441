import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.data import EOS, BlockBatches, ContextWindows, SentenceBatches, ShardedTokens, StreamBatches
from keras_adaptive.data.batches import token_stream as stream
from tests.support.refusals import refused

pytestmark = pytest.mark.once

SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=6)


def shards(sizes, seed=1):
    """Arrays of these sizes, whose lines continue from one array to the next."""
    random = np.random.default_rng(seed)
    return [random.integers(EOS, 9, size).astype("uint16") for size in sizes]


@given(sizes=SIZES, data=st.data())
def test_reads_as_the_concatenation(sizes, data):
    arrays = shards(sizes)
    tokens, plain = ShardedTokens(arrays), np.concatenate(arrays)
    assert len(tokens) == len(plain) and (tokens.shape, tokens.dtype) == (plain.shape, plain.dtype)
    np.testing.assert_array_equal(np.asarray(tokens), plain)
    some = data.draw(st.slices(len(plain)))
    np.testing.assert_array_equal(tokens[some], plain[some])
    if len(plain):
        place = st.integers(-len(plain), len(plain) - 1)
        index = np.array(data.draw(st.lists(place, min_size=2, max_size=8)))[: 2 * 4].repeat(2).reshape(-1, 2)
        found = tokens[index]
        np.testing.assert_array_equal(found, plain[index])
        assert found.dtype == plain.dtype and tokens[index[0, 0]] == plain[index[0, 0]]


def test_a_slice_of_one_shard_is_no_copy():
    arrays = shards([4, 5])
    assert np.shares_memory(ShardedTokens(arrays)[4:8], arrays[1])


@pytest.mark.parametrize("index", [9, -10, [0, 9], np.zeros(9, bool), 1.0])
def test_refuses_what_is_no_place(index):
    with pytest.raises(IndexError, match="out of bounds for 9 tokens|must be integers"):
        ShardedTokens(shards([4, 5]))[index]


def test_refuses_shards_of_different_types():
    match = "must have one dtype. Received: dtypes=.'uint16', 'int32'"
    refused(ShardedTokens, [np.zeros(3, "uint16"), np.zeros(3, "int32")], match=match)


def flat(batches):
    return ((*inputs, *rest) for inputs, *rest in batches)


READERS = {
    "blocks": lambda tokens: BlockBatches(tokens, 4, 3, seed=5).batches(0, 9),
    "sentences": lambda tokens: SentenceBatches(tokens, 24, seed=5, max_length=8).batches(0, 30),
    "streams": lambda tokens: flat(StreamBatches(tokens, 5, 3, seed=5).batches(0, 9)),
    "windows": lambda tokens: ContextWindows(tokens, 4, 7, batch_size=2),
    "windows of tokens": lambda tokens: ContextWindows(tokens, 4, 7, batch_size=2, by_lines=False),
}


@pytest.mark.parametrize("chunk", [1, 5, 1 << 22])
@pytest.mark.parametrize("kind", list(READERS))
def test_batches_go_on_over_the_borders_of_shards(kind, chunk, monkeypatch):
    arrays = shards([1, 13, 0, 27, 2, 0])
    expected = list(READERS[kind](np.concatenate(arrays)))
    monkeypatch.setattr(stream, "_CHUNK", chunk)
    tokens = ShardedTokens(arrays)
    monkeypatch.delattr(ShardedTokens, "__array__")  # which would read all
    for one, other in zip(READERS[kind](tokens), expected, strict=True):
        for array, its in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, its)
            assert array.dtype == its.dtype


def test_sentences_take_ten_bytes_each(monkeypatch):
    monkeypatch.setattr(stream, "_CHUNK", 1 << 12)
    tokens = ShardedTokens(np.array_split(np.random.default_rng(1).integers(EOS, 12, 1_000_000).astype("uint16"), 5))
    sentences = sum(np.count_nonzero(shard == EOS) for shard in tokens.shards)
    tracemalloc.start()
    batches = SentenceBatches(tokens, 4096, seed=1)
    batches.batch(0)
    batches.batch(len(batches))  # of the next epoch: one order at a time
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sentences > 90_000 and peak < 10 * sentences + 500_000
