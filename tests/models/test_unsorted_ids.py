"""Ids that are not sorted by count cause one warning, before the training; everything else causes none."""

import warnings

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, SampledSoftmax
from keras_adaptive.layers.outputs.unsorted_ids import means_if_unsorted, warn_if_unsorted
from keras_adaptive.models import WordModel
from tests.support.backends import BACKEND
from tests.support.tiny import language_model

VOCABULARY, LENGTH, ROWS = 500, 6, 250
WARNING = r"descending order of their counts.* mean id of the first targets is \d+, and would be \d+.*from_counts"
RANDOM = np.random.default_rng(0)
MIXED = RANDOM.permutation(VOCABULARY)


def zipf(vocabulary_size, size, exponent=1.0):
    shares = np.arange(1, vocabulary_size + 1.0) ** -exponent
    return RANDOM.choice(vocabulary_size, size, p=shares / shares.sum())


@pytest.mark.once
def test_what_is_unsorted():
    for vocabulary_size in (200, 10_000, 1_000_000):
        ids, mixed = zipf(vocabulary_size, 10_000), RANDOM.permutation(vocabulary_size)
        mean, sorted_mean = means_if_unsorted(mixed[ids], vocabulary_size)
        assert mean == pytest.approx(vocabulary_size / 2, rel=0.4) and sorted_mean < mean / 1.5
        assert means_if_unsorted(vocabulary_size - 1 - ids, vocabulary_size)


@pytest.mark.parametrize("vocabulary_size", [5, 40, 500, 20_000, 1_000_000])
@pytest.mark.once
def test_what_is_not(vocabulary_size):
    """Sorted words, with or without four special ones before them, words of equal counts, periods, and little data."""
    for exponent in (0.5, 1.0, 1.5):
        for size in (1_000, 5_000, 20_000):
            ids = zipf(vocabulary_size, size, exponent)
            assert means_if_unsorted(ids, vocabulary_size) is None
            assert means_if_unsorted(np.minimum(ids + 4, vocabulary_size - 1), vocabulary_size) is None
            assert means_if_unsorted(RANDOM.integers(0, vocabulary_size, size), vocabulary_size) is None
    assert means_if_unsorted(np.arange(5_000) % vocabulary_size, vocabulary_size) is None
    assert means_if_unsorted(np.full(999, vocabulary_size - 1), vocabulary_size) is None
    assert means_if_unsorted(np.zeros(0, "int32"), vocabulary_size) is None


def word_model(output=None, inputs=None):
    ids = keras.Input((LENGTH,), dtype="int32")
    hidden = (inputs or keras.layers.Embedding(VOCABULARY, 8))(ids)
    model = WordModel(ids, hidden, word_output=output or AdaptiveSoftmax(VOCABULARY, (50,), factor=2))
    model.compile("sgd", run_eagerly=BACKEND == "tensorflow")
    return model


SORTED = zipf(VOCABULARY, ROWS * LENGTH).reshape(ROWS, LENGTH).astype("int32")
UNSORTED = MIXED[SORTED].astype("int32")


def check(model, *data):
    return warn_if_unsorted(model, model.word_output, *data)


def added():
    """Returns a model whose output is called with the targets, and which can be trained on arrays."""
    ids, targets = (keras.Input((LENGTH,), dtype="int32", name=name) for name in ("ids", "targets"))
    softmax = AdaptiveSoftmax(VOCABULARY, (50,), factor=2)
    model = keras.Model([ids, targets], softmax(keras.layers.Embedding(VOCABULARY, 8)(ids), targets))
    model.compile("sgd", run_eagerly=BACKEND == "tensorflow")
    return model


def language():
    model = language_model(VOCABULARY, dtype="float32")
    model.compile("sgd", run_eagerly=BACKEND == "tensorflow")
    return model


@pytest.mark.parametrize("make", [word_model, language])
def test_fit_warns_once(make):
    model = make()
    with pytest.warns(UserWarning, match=WARNING) as caught:
        model.fit(UNSORTED, UNSORTED, batch_size=ROWS, verbose=0)
    assert sum("counts" in str(warning.message) for warning in caught) == 1
    model.fit(UNSORTED, UNSORTED, batch_size=ROWS, verbose=0)  # a warning would be an error
    check(make(), SORTED, SORTED)


def test_fit_warns_of_targets_that_are_inputs():
    model = added()
    with pytest.warns(UserWarning, match=WARNING):
        model.fit([UNSORTED, UNSORTED], batch_size=ROWS, verbose=0)
    layer, arguments = model.layers[-1], {"self": model, "x": {"ids": SORTED, "targets": UNSORTED}}
    del model.order_is_checked
    with pytest.warns(UserWarning, match=WARNING):
        model.output_checks._check_order(layer, arguments)
    del model.order_is_checked
    model.output_checks._check_order(layer, {"self": model, "x": [UNSORTED, SORTED]})


class Pairs(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        rows = slice(index * 50, index * 50 + 50)
        return UNSORTED[rows], UNSORTED[rows]


def batches():
    yield from map(Pairs().__getitem__, range(5))


def dataset():
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((UNSORTED, UNSORTED)).batch(50)


@pytest.mark.parametrize("data", [Pairs, batches, *([dataset] if BACKEND == "tensorflow" else [])])
def test_data_sets_and_generators_are_looked_at_and_kept(data):
    with pytest.warns(UserWarning, match=WARNING):
        kept = check(word_model(), data())
    kept = [kept[number] for number in range(5)] if data is Pairs else list(kept)
    np.testing.assert_array_equal(np.concatenate([np.asarray(targets) for _, targets in kept]), UNSORTED)


class WithoutBatches(keras.utils.PyDataset):
    def __len__(self):
        return 0

    def __getitem__(self, index):
        raise IndexError(index)


def test_a_data_set_without_batches_is_not_read():
    data = WithoutBatches()
    assert check(word_model(), data) is data


@pytest.mark.parametrize("make", [language, word_model])
def test_tensors_are_arrays_too(make):
    with pytest.warns(UserWarning, match=WARNING):
        check(make(), None, keras.ops.convert_to_tensor(UNSORTED))


@pytest.mark.once
def test_padding_does_not_count():
    """Padding does not count by weights, nor outside the vocabulary, wherever its id is."""
    padded, weights = np.concatenate([SORTED] * 8), np.ones((8 * ROWS, LENGTH), "float32")
    padded[ROWS:], weights[ROWS:] = VOCABULARY - 1, 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(word_model(), None, padded, weights)
        check(word_model(), None, padded, weights[:, 0])
        check(word_model(), None, np.where(weights > 0, padded, -1))


def test_only_models_that_rely_on_the_order_are_looked_at():
    counts = np.ones(VOCABULARY, "int64")
    plain, noise = AdaptiveSoftmax(VOCABULARY, ()), SampledSoftmax(VOCABULARY, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for output in (plain, SampledSoftmax(VOCABULARY, 5, counts=counts)):
            check(word_model(output), None, UNSORTED)
    bands = AdaptiveEmbedding(VOCABULARY, 8, (50,))
    for model in (word_model(noise), word_model(AdaptiveSoftmax(VOCABULARY, ()), bands)):
        with pytest.warns(UserWarning, match=WARNING):
            check(model, None, UNSORTED)
