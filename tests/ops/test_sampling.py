"""Noise words: their distribution, that they are different, and their expected counts."""

import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops.sampling import (
    LogUniform,
    Noise,
    Uniform,
    Unigram,
    alias_table,
    draw_noise,
    first_different,
    number_of_candidates,
)
from tests.support.backends import BACKEND, numpy, runner
from tests.support.draws import check_draws

COUNTS = np.array([0, 0, 50, 20, 9, 9, 7, 3, 3, 2, 1, 1])
SEVERAL = np.array([5, 3, 5, 9, 3, 1, 7], "int32")


def zipf(ids, vocabulary_size):
    """The formula of `tf.random.log_uniform_candidate_sampler`."""
    return (np.log(ids + 2.0) - np.log(ids + 1.0)) / np.log(vocabulary_size + 1.0)


def uniform(count, seed=1):
    return np.random.default_rng(seed).random((2, count)).astype("float32")


def candidates(distribution, numbers):
    return runner(distribution.candidates)(numbers)


@pytest.mark.parametrize("vocabulary_size", [2, 3, 40])
def test_log_uniform_candidates_have_their_probabilities(vocabulary_size):
    distribution, ids = LogUniform(vocabulary_size), np.arange(vocabulary_size)
    expected = zipf(ids, vocabulary_size)
    np.testing.assert_allclose(numpy(distribution.probabilities(ids)), expected, rtol=1e-5)
    np.testing.assert_allclose(distribution.all_probabilities(), expected, rtol=1e-12)
    np.testing.assert_allclose(expected.sum(), 1.0)
    check_draws(candidates(distribution, uniform(40_000)), expected)


def test_log_uniform_candidates_of_a_large_vocabulary_are_the_inverse_of_the_distribution():
    """All backends draw the same words, except where a rounding error crosses the border of neighbors."""
    size, numbers = 3_000_000, uniform(50_000)
    numbers[:, :4] = [[0, 0, 1 - 2**-24, 1 - 2**-24], [0, 1 - 2**-24, 0, 1 - 2**-24]]
    ids = candidates(LogUniform(size), numbers)
    logs = (np.floor(numbers[0].astype("float64") * 1024) + numbers[1]) / 1024 * np.log(size + 1.0)
    expected = np.floor(np.exp(logs) + 1e-9) - 1
    assert np.abs(ids - expected).max() <= 1 and np.mean(ids != expected) < 0.01
    assert ids.min() == 0 and ids.max() == size - 1


def test_words_that_differ_little_in_their_logarithms_are_all_drawn():
    """A logarithm in float32 would leave out most of these words."""
    size = 3_000_000
    numbers = np.stack([np.full(40_000, 1 - 2**-11), np.linspace(0.5, 0.6, 40_000)]).astype("float32")
    ids, counts = np.unique(candidates(LogUniform(size), numbers), return_counts=True)
    assert len(ids) == ids[-1] - ids[0] + 1 and counts[1:-1].min() > 0.7 * counts.mean()


def test_unigram_candidates_have_the_probabilities_of_the_counts():
    distribution = Unigram(COUNTS)
    expected = np.maximum(COUNTS, 1) / np.maximum(COUNTS, 1).sum()
    np.testing.assert_allclose(numpy(distribution.probabilities(np.arange(12))), expected, rtol=1e-6)
    check_draws(candidates(distribution, uniform(40_000)), expected)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
@pytest.mark.once
def test_the_cells_of_an_alias_table_add_up(size):
    for seed in range(20):
        random = np.random.default_rng(seed)
        for probabilities in (random.dirichlet(np.full(size, 0.3)), np.full(size, 1 / size)):
            shares, aliases = alias_table(probabilities)
            total = shares.copy()
            np.add.at(total, aliases, 1 - shares)
            np.testing.assert_allclose(total / size, probabilities, atol=1e-14)
            assert shares.min() > -1e-12 and shares.max() <= 1


@pytest.mark.parametrize(
    "number, ids, found, tries",
    [(3, [3, 5, 9], 3, 4), (1, [5], 1, 1), (5, [1, 3, 5, 7, 9], 5, 7), (7, [1, 3, 5, 7, 9], 5, 7)],
)
def test_the_first_different_candidates_are_the_noise(number, ids, found, tries):
    """If there are too few, the remaining positions repeat a word and are marked."""
    noise = Noise(*runner(lambda candidates: first_different(candidates, number))(SEVERAL))
    np.testing.assert_array_equal(noise.ids, [*ids, *[5] * (number - found)])
    np.testing.assert_array_equal(noise.found, np.arange(number) < found)
    assert noise.tries == tries


WORDS, SAMPLES = 600, 200


@pytest.mark.parametrize("vocabulary_size", [2, 3, 40])
def test_uniform_candidates(vocabulary_size):
    distribution = Uniform(vocabulary_size)
    expected = np.full(vocabulary_size, 1 / vocabulary_size)
    np.testing.assert_allclose(numpy(distribution.probabilities(np.arange(vocabulary_size))), expected, rtol=1e-6)
    np.testing.assert_allclose(distribution.all_probabilities(), expected)
    check_draws(candidates(distribution, uniform(40_000)), expected)


def test_all_of_three_million_words_are_drawn_alike():
    """One number of 23 bits would draw some words twice and others three times as often."""
    size = 3_000_000
    first = np.repeat(np.arange(2**23 - 4_000, 2**23), 10) / 2**23
    second = np.random.default_rng(1).integers(0, 2**23, len(first)) / 2**23
    ids = candidates(Uniform(size), np.stack([first, second]).astype("float32"))
    assert ids.min() >= 0 and ids.max() < size and len(np.unique(ids)) > 0.98 * len(ids)


@pytest.mark.parametrize("make", [lambda: LogUniform(WORDS), lambda: Unigram(10_000 // np.arange(1, WORDS + 1))])
def test_expected_counts_are_the_probabilities_to_be_drawn(make):
    """So the sum of f(w) / count(w) over the noise is the sum of f(w) over all words, on average."""
    distribution, ids = make(), np.arange(WORDS)
    size = number_of_candidates(distribution, SAMPLES)
    values = np.random.default_rng(1).random(WORDS) + 0.5

    def draw(numbers):
        noise = first_different(distribution.candidates(numbers), SAMPLES)
        return (*noise, noise.expected_counts(distribution.probabilities(ops.convert_to_tensor(ids))))

    run, drawn, counts, sums, repeats = runner(draw), np.zeros(WORDS), np.zeros(WORDS), [], 200
    for seed in range(repeats):
        chosen, found, tries, expected = run(uniform(size, seed))
        assert found.all() and len(np.unique(chosen)) == SAMPLES and tries >= SAMPLES
        assert abs(expected.sum() - SAMPLES) < 0.15 * SAMPLES
        drawn[chosen] += 1 / repeats
        counts += expected / repeats
        sums.append(np.sum(values[chosen] / expected[chosen]))
    deviation = np.sqrt(counts * np.maximum(1 - counts, 0) / repeats)
    assert np.all(np.abs(drawn - counts) < 5 * deviation + 1e-3)
    assert abs(np.mean(drawn - counts)) < 1e-3 and abs(np.mean(sums) / values.sum() - 1) < 0.01


@pytest.mark.parametrize("size, samples", [(1, 1), (3, 3), (20, 19), (2_000, 100), (2_000, 1_900)])
def test_tiny_vocabularies_and_many_samples(size, samples):
    """Draws end, and what was not found is marked. Otherwise there are enough candidates for all."""
    distribution = LogUniform(size)
    number = number_of_candidates(distribution, samples)
    assert samples <= number <= 16 * samples
    noise = Noise(*runner(lambda numbers: first_different(distribution.candidates(numbers), samples))(uniform(number)))
    words = noise.ids[noise.found]
    assert len(np.unique(words)) == len(words) and 0.5 * samples < len(words) <= samples
    assert np.isin(noise.ids, words).all() and noise.ids.max() < size
    if number < 16 * samples:
        assert noise.found.all()
    counts = numpy(noise.expected_counts(numpy(distribution.probabilities(np.arange(size)))))
    assert np.all((counts > 0) & (counts <= 1))


def test_noise_is_a_function_of_the_seed():
    distribution = Unigram(COUNTS)
    first, again, other = ([numpy(part) for part in draw_noise(distribution, 6, 60, seed)] for seed in (1, 1, 2))
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


@pytest.mark.skipif(BACKEND != "tensorflow", reason="it is compared with TensorFlow's sampler")
def test_the_expected_counts_of_tensorflow():
    import tensorflow as tf

    targets = tf.constant([[0], [7], [999]], tf.int64)
    ids, of_targets, of_noise = tf.random.log_uniform_candidate_sampler(targets, 1, 50, True, 1_000, seed=3)
    distribution = LogUniform(1_000)
    tries = np.round(np.log1p(-of_targets[0, 0]) / np.log1p(-zipf(0, 1_000)))  # which the sampler does not tell
    noise = Noise(ids, None, np.float32(tries))
    for words, expected in ((targets, of_targets), (ids, of_noise)):
        found = noise.expected_counts(distribution.probabilities(words))
        np.testing.assert_allclose(found, expected, rtol=1e-3)
