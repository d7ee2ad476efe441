"""Batches of raw lines, which are those of `BlockBatches` on a prepared corpus."""

import numpy as np
import pytest

from keras_adaptive.data import BlockBatches, TextCodec, Vocabulary
from keras_adaptive.text import TextBatches, text_dataset
from tests.support.backends import BACKEND
from tests.support.refusals import refused
from tests.support.text import NASTY, prepared
from tests.support.tiny import WORDS, language_model

LINES = [*NASTY, "the cat sat", "", "the cat"] * 2
UNITS = {
    "words": {"min_count": 3},
    "marks": {"tokenizer": "words", "min_count": 1},
    "characters": {"tokenizer": "characters", "min_count": 3},
    "bytes": {"tokenizer": "bytes", "min_count": 3},
    "sub-words": {"subwords": 8, "min_count": 1},
}
CODEC = TextCodec(Vocabulary(WORDS, range(len(WORDS), 0, -1)))
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="its graphs tokenize")


@pytest.fixture(scope="module", params=UNITS)
def corpus(request, tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("text"), "\n".join([*LINES, ""]), **UNITS[request.param])


def assert_equal(batches, expected):
    batches = list(batches)
    assert len(batches) == len(expected)
    for one, other in zip(batches, expected):
        assert [part.dtype for part in one] == [part.dtype for part in other]
        for part, same in zip(one, other):
            np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.once
def test_lines_make_the_batches_of_their_corpus_in_every_epoch(corpus, shuffle):
    how = {"length": 7, "batch_size": 4, "seed": 3, "shuffle": shuffle}
    expected = BlockBatches(corpus.tokens("train"), **how)
    batches = TextBatches(LINES, TextCodec.load(corpus.data_dir), **how)
    for epoch in range(2):
        batches.on_epoch_begin()
        start = epoch * len(expected)
        found = (batches[index] for index in range(len(batches)))
        assert_equal(found, list(expected.batches(start, start + len(expected))))


@pytest.mark.once
def test_fit_asks_for_every_batch_in_its_order():
    asked = []

    class Recorded(TextBatches):
        def __getitem__(self, index):
            asked.append((self.epoch, index))
            return super().__getitem__(index)

    model = language_model()
    model.compile("sgd", run_eagerly=True)
    batches = Recorded([" ".join(WORDS[4:9])] * 4, CODEC, 4, 2, seed=1)
    model.fit(batches, epochs=2, shuffle=False, verbose=0)
    first = list(dict.fromkeys(asked))  # Keras reads some batches twice, to know their shapes
    assert first == [(epoch, index) for epoch in range(2) for index in range(3)]


@on_tensorflow
def test_graphs_make_the_batches_of_the_corpus(corpus):
    import tensorflow as tf

    codec, how = TextCodec.load(corpus.data_dir), {"length": 7, "batch_size": 4}
    expected = BlockBatches(corpus.tokens("train"), **how, seed=3, shuffle=False)
    expected = list(expected.batches(0, len(expected)))
    dataset = text_dataset(tf.data.Dataset.from_tensor_slices(LINES), codec, **how)
    assert [part.shape.as_list() for part in dataset.element_spec] == [[4, 7]] * 3
    assert_equal(dataset.as_numpy_iterator(), expected)
    shuffled = text_dataset(tf.data.Dataset.from_tensor_slices(LINES), codec, **how, shuffle=10, seed=1)
    epochs = [np.concatenate([batch[1] for batch in shuffled.as_numpy_iterator()]) for _ in range(2)]
    rows = np.concatenate([batch[1] for batch in expected])
    assert not np.array_equal(epochs[0], rows) and not np.array_equal(*epochs)
    assert sorted(map(tuple, epochs[0])) == sorted(map(tuple, rows))


@pytest.mark.once
def test_sizes_that_are_not_positive_are_refused():
    refused(text_dataset, None, None, 0, 4, match="must not be empty. Received: length=0, batch_size=4")
    refused(TextBatches, [], CODEC, 4, 2, seed=1, match="`length` must be from 1 to the number of tokens")
