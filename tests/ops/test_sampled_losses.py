"""Sampled cross-entropy and noise-contrastive loss: against NumPy, TensorFlow's functions and the whole softmax."""

from functools import partial

import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops import noise_contrastive_loss, sampled_binary_cross_entropy, sampled_cross_entropy
from keras_adaptive.ops.sampling import LogUniform, first_different, number_of_candidates
from tests.support import oracle
from tests.support.backends import BACKEND, MODES, differentiated, largest_array, runner, value_and_gradients
from tests.support.closeness import close

ROWS, DIM, WORDS, SAMPLES = 7, 4, 12, 5
TARGETS = np.array([3, 0, 11, -1, 7, 3, 5], "int32")  # 3, 0 and 7 are among the noise
WEIGHTS = np.array([1, 0.5, 2, 1, 0, 1, 3], "float32")
IDS = np.array([7, 3, 0, 9, 1], "int32")
TARGET_COUNTS = np.linspace(0.9, 0.05, ROWS).astype("float32")
COUNTS = np.array([0.3, 0.6, 1.0, 0.01, 0.8], "float32")
SAMPLED = (IDS, TARGET_COUNTS, COUNTS)
LOSSES = {
    "sampled": sampled_cross_entropy,
    "contrastive": noise_contrastive_loss,
    "binary": partial(sampled_binary_cross_entropy, target_weight=0.3),
}
ORACLES = {
    "sampled": oracle.sampled_cross_entropy,
    "contrastive": oracle.noise_contrastive_loss,
    "binary": partial(oracle.sampled_binary_cross_entropy, target_weight=0.3),
}
CASES = [(loss, mode) for loss in LOSSES for mode in MODES]


def arrays(seed=3):
    """Hidden states, table and bias."""
    random = np.random.default_rng(seed)
    return [random.normal(size=size).astype("float32") for size in ((ROWS, DIM), (WORDS, DIM), WORDS)]


def looked_up(loss, sampled=SAMPLED):
    """A loss as a function of hidden states, the whole table and the whole bias."""
    places = np.concatenate([sampled[0], np.maximum(TARGETS, 0)])

    def function(x, table, bias, targets, weights, target_counts, counts):
        sampled_values = (sampled[0], target_counts, counts)
        vectors, biases = (ops.take(one, places, axis=0) for one in (table, bias))
        return loss(x, vectors, targets, weights, sampled_values, biases)

    return function


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request):
    """Value and gradients of a loss, compiled once, and its oracle."""
    loss, mode = request.param
    run = differentiated(looked_up(LOSSES[loss]), mode)
    return lambda tensors, counts=COUNTS: run(tensors, TARGETS, WEIGHTS, TARGET_COUNTS, counts), ORACLES[loss]


def exact(formula, tensors, counts=COUNTS):
    """The value and the gradients of an oracle, in which a word without a count is not drawn."""
    drawn = counts > 0
    sampled = (IDS[drawn], TARGET_COUNTS, counts[drawn])
    whole = lambda x, table, bias: formula(x, table, bias, TARGETS, WEIGHTS, sampled)  # noqa: E731
    return whole(*(tensor.astype("float64") for tensor in tensors)), oracle.gradients(whole, tensors)


def test_value_and_gradients(case):
    run, formula = case
    close(run(arrays()), exact(formula, arrays()))


def test_a_word_without_an_expected_count_is_left_out(case):
    run, formula = case
    counts = COUNTS * np.array([1, 0, 1, 1, 0], "float32")  # 3 is a target
    close(run(arrays(), counts), exact(formula, arrays(), counts))


def test_large_logits_do_not_overflow(case):
    run, formula = case
    x, table, bias = arrays()
    tensors = [100 * x, table, 100 * bias]
    close(run(tensors), exact(formula, tensors))


@pytest.mark.parametrize("loss", LOSSES)
def test_without_a_bias(loss):
    x, table, bias = arrays()
    places = np.concatenate([IDS, np.maximum(TARGETS, 0)])
    function = lambda x, table: LOSSES[loss](x, ops.take(table, places, axis=0), TARGETS, WEIGHTS, SAMPLED)  # noqa: E731
    expected, gradients = exact(ORACLES[loss], [x, table, 0 * bias])
    close(value_and_gradients(function, [x, table]), (expected, gradients[:2]))


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_that_do_not_count_may_hold_anything(loss):
    x, table, bias = arrays()
    dirty = np.where((TARGETS < 0) | (WEIGHTS == 0), np.nan, x.T).T.astype("float32")
    run = differentiated(looked_up(LOSSES[loss]))
    clean, found = (run([one, table, bias], TARGETS, WEIGHTS, TARGET_COUNTS, COUNTS) for one in (x, dirty))
    close(found, clean)


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 2e-2), ("float16", 4e-3)])
@pytest.mark.parametrize("loss", LOSSES)
def test_mixed_precision(loss, dtype, tolerance):
    """The hidden states are narrow, and the gradient of the float32 table is float32."""
    x, table, bias = arrays()
    function = looked_up(LOSSES[loss])
    run = differentiated(lambda x, *rest: function(ops.cast(x, dtype), *rest))
    value, gradients = run([x, table, bias], TARGETS, WEIGHTS, TARGET_COUNTS, COUNTS)
    close((value, gradients), exact(ORACLES[loss], [x, table, bias]), tolerance)
    assert all(gradient.dtype == "float32" for gradient in gradients)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_array_holds_all_logits(loss):
    rows, samples, dim = 2_048, 600, 4
    random = np.random.default_rng(0)
    x, vectors = (random.normal(size=(size, dim)).astype("float32") for size in (rows, samples + rows))
    sampled = np.arange(samples), np.full(rows, 0.5, "float32"), np.full(samples, 0.5, "float32")
    targets, weights = random.integers(0, 2 * samples, rows).astype("int32"), np.ones(rows, "float32")
    function = lambda x, vectors: LOSSES[loss](x, vectors, targets, weights, sampled)  # noqa: E731
    assert largest_array(function, x, vectors) <= 1_024 * (samples + 1)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="it is compared with TensorFlow's functions")
@pytest.mark.parametrize("name", ["sampled", "contrastive"])
def test_tensorflow_computes_the_same(name):
    """Loss and every gradient, of the rows together and of each row."""
    import tensorflow as tf

    theirs = {"sampled": tf.nn.sampled_softmax_loss, "contrastive": tf.nn.nce_loss}[name]
    rows = np.flatnonzero(TARGETS >= 0)
    x, table, bias = arrays()
    values = (tf.constant(IDS, tf.int64), tf.constant(TARGET_COUNTS[rows, None]), tf.constant(COUNTS))
    arguments = {"num_sampled": SAMPLES, "num_classes": WORDS, "num_true": 1, "sampled_values": values}

    def peer(x, table, bias):
        labels = tf.constant(TARGETS[rows, None], tf.int64)
        return tf.reduce_sum(WEIGHTS[rows] * theirs(table, bias, labels, tf.gather(x, rows), **arguments))

    expected = value_and_gradients(peer, [x, table, bias])
    actual = differentiated(looked_up(LOSSES[name]))([x, table, bias], TARGETS, WEIGHTS, TARGET_COUNTS, COUNTS)
    close(actual, expected, 1e-6)


def test_it_approaches_the_cross_entropy_of_the_whole_vocabulary():
    """The mean over the noise approaches it with more noise words, and equals it if all words are drawn."""
    words, rows = 500, 20
    ones = np.ones(rows, "float32")
    random = np.random.default_rng(1)
    x, table = (random.normal(size=(size, DIM)).astype("float32") for size in (rows, words))
    distribution = LogUniform(words)
    targets = np.minimum(random.zipf(1.2, rows) - 1, words - 1).astype("int32")
    whole = oracle.linear_cross_entropy(x, table, targets, ones)[0] / rows

    def errors(samples, repeats):
        def function(numbers):
            noise = first_different(distribution.candidates(numbers), samples)
            ids = ops.concatenate([noise.ids, targets])
            counts = noise.expected_counts(distribution.probabilities(ids))
            sampled = noise.ids, counts[samples:], ops.where(noise.found, counts[:samples], 0.0)
            return sampled_cross_entropy(x, ops.take(table, ids, axis=0), targets, ones / rows, sampled)

        run, size = runner(function), number_of_candidates(distribution, samples)
        return [run(random.random((2, size)).astype("float32")) - whole for _ in range(repeats)]

    few, more, most = (np.abs(np.mean(errors(samples, 10))) for samples in (20, 250, 480))
    assert few > 3 * more > 9 * most and most < 0.01 * whole
    everything = np.arange(words), ones, np.ones(words, "float32")
    vectors = np.concatenate([table, table[targets]])
    total = runner(lambda x: sampled_cross_entropy(x, vectors, targets, ones, everything))(x)
    np.testing.assert_allclose(total / rows, whole, rtol=1e-6)
