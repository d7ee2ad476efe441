"""The most probable words and draws from the exact distribution, beyond what test_every_output.py checks."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.layers.outputs.banded_softmax import BandedSoftmax
from keras_adaptive.ops.chunks import chunk_sizes
from tests.support import oracle
from tests.support.backends import BACKEND, MODES, largest_array, numpy, runner
from tests.support.closeness import all_close
from tests.support.draws import check_draws
from tests.support.weights import built, exact_log_probs

VOCABULARY, DIM, CUTOFFS = 20, 8, (5, 12)


@pytest.fixture(scope="module")
def softmax():
    embedding = AdaptiveEmbedding(VOCABULARY, DIM, CUTOFFS, factor=2, dtype="float32")
    return built(AdaptiveSoftmax(VOCABULARY, CUTOFFS, tied_to=embedding, dtype="float32"), DIM)


@pytest.fixture
def hidden():
    return np.random.default_rng(1).normal(size=(3, 4, DIM)).astype("float32")


@pytest.mark.parametrize("k", [1, 3, 5, 8, VOCABULARY])
def test_top_k_are_the_best_of_all(softmax, hidden, k):
    log_probs, ids = runner(lambda h: softmax.top_k(h, k))(hidden)
    expected = exact_log_probs(softmax, hidden)
    order = np.argsort(-expected, axis=-1)[..., :k]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(log_probs, np.take_along_axis(expected, order, axis=-1), atol=5e-6)


def test_top_k_finds_words_of_every_tail(softmax):
    """A hidden vector whose best word is in the tail, alone in its batch, so that other tails can be skipped."""
    candidates = 3 * np.random.default_rng(3).normal(size=(2_000, DIM)).astype("float32")
    best, run = exact_log_probs(softmax, candidates).argmax(axis=-1), runner(lambda h: softmax.top_k(h, 1))
    for low, high in zip(CUTOFFS, (*CUTOFFS[1:], VOCABULARY), strict=True):
        first = np.flatnonzero((best >= low) & (best < high))[0]
        _, ids = run(candidates[[first]])
        assert ids[0, 0] == best[first]


DRAWS = 20_000
CASES = [(0.7, None), (1.0, 7), (1.3, 3)]


@pytest.mark.parametrize("temperature, top_k", CASES)
def test_frequencies_are_the_probabilities(softmax, temperature, top_k):
    hidden = 0.5 * np.random.default_rng(2).normal(size=(1, DIM)).astype("float32")
    uniform = np.random.default_rng(3).random((2, DRAWS)).astype("float32")
    many = np.repeat(hidden, DRAWS, axis=0)
    ids = runner(lambda h, u: softmax.sample_from_uniform(h, u, temperature, top_k))(many, uniform)
    scores = exact_log_probs(softmax, hidden)[0] / temperature
    if top_k is not None:
        scores[np.argsort(-scores)[top_k:]] = -np.inf
    check_draws(ids, np.exp(oracle.log_softmax(scores)))


def test_sample_draws_rows_independently_and_by_seed(softmax):
    hidden = np.zeros((DRAWS, DIM), "float32")  # all words of a band are alike
    first, second, again = runner(lambda h: [softmax.sample(h, seed=seed) for seed in (1, 2, 1)])(hidden)
    assert first.shape == (DRAWS,) and first.dtype == "int32"
    probabilities = np.exp(exact_log_probs(softmax, hidden[:1])[0])
    check_draws(first, probabilities)
    np.testing.assert_array_equal(first, again)
    alike = np.mean(first == second), np.mean(first[1:] == first[:-1])
    np.testing.assert_allclose(alike, np.sum(probabilities**2), atol=0.01)


def test_a_seed_generator_goes_on(softmax):
    hidden, seed = np.zeros((200, DIM), "float32"), keras.random.SeedGenerator(1)
    assert np.any(numpy(softmax.sample(hidden, seed=seed)) != numpy(softmax.sample(hidden, seed=seed)))


@pytest.mark.parametrize("temperature, top_k", [(0, None), (1e-60, None), (1e-42, None), (1e-30, 3)])
def test_the_least_temperatures_take_the_best(softmax, hidden, temperature, top_k):
    ids = numpy(softmax.sample(hidden, temperature=temperature, top_k=top_k))
    np.testing.assert_array_equal(ids, exact_log_probs(softmax, hidden).argmax(axis=-1))


@pytest.mark.parametrize("top_k", [None, 1, 3])
def test_extreme_numbers_give_words_of_the_vocabulary(softmax, hidden, top_k):
    run = runner(lambda h, u: softmax.sample_from_uniform(h, u, 1.0, top_k))
    for number in (0.0, np.nextafter(np.float32(1), np.float32(0))):
        ids = run(hidden, np.full((2, 3, 4), number, "float32"))
        assert ids.min() >= 0 and ids.max() < VOCABULARY


def plain():
    """Returns a plain softmax of the same vocabulary."""
    return built(AdaptiveSoftmax(VOCABULARY, (), dtype="float32"), DIM)


@pytest.mark.parametrize("cutoffs", [CUTOFFS, ()], ids=str)
def test_alternatives_come_with_scores_and_entropies(softmax, hidden, cutoffs):
    softmax = softmax if cutoffs else plain()
    targets = np.random.default_rng(0).integers(0, VOCABULARY, (3, 4)).astype("int32")
    targets[0, :2] = -1, VOCABULARY
    own, ranks, entropies, best, ids = runner(lambda h, t: softmax.alternatives(h, t, 3))(hidden, targets)
    expected = exact_log_probs(softmax, hidden)
    all_close((own, ranks), runner(softmax.score)(hidden, targets), atol=5e-6)
    np.testing.assert_allclose(entropies, -np.sum(np.exp(expected) * expected, axis=-1), atol=5e-6)
    order = np.argsort(-expected, axis=-1)[..., :3]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(best, np.take_along_axis(expected, order, axis=-1), atol=5e-6)


@pytest.fixture(scope="module")
def nucleus(softmax):
    """`(hidden, uniform, k, top_p) -> ids` at the temperature 1.3, in graphs, to compile once."""
    mode = "function" if BACKEND == "tensorflow" else MODES[0]
    return runner(lambda h, u, k, top_p: softmax.sample_top_k(h, u, 1.3, k, VOCABULARY, top_p), mode)


@pytest.mark.parametrize("top_k, top_p", [(None, 0.6), (7, 0.5), (None, 1.0), (None, 1e-9)])
def test_a_nucleus_is_the_fewest_words_of_a_probability(softmax, nucleus, top_k, top_p):
    hidden = 0.5 * np.random.default_rng(2).normal(size=(1, DIM)).astype("float32")
    uniform = np.random.default_rng(3).random((2, DRAWS)).astype("float32")
    k = np.int32(top_k or VOCABULARY)
    ids = nucleus(np.repeat(hidden, DRAWS, axis=0), uniform, k, np.float32(top_p))
    scores = exact_log_probs(softmax, hidden)[0] / 1.3
    order = np.argsort(-scores)
    scores[order[top_k or VOCABULARY :]] = -np.inf
    probabilities = np.exp(oracle.log_softmax(scores))
    before = np.cumsum(probabilities[order]) - probabilities[order]
    scores[order[1:][before[1:] >= top_p]] = -np.inf
    if top_p < 1e-6:
        assert (ids == order[0]).all()
    else:
        check_draws(ids, np.exp(oracle.log_softmax(scores)))


def test_a_nucleus_that_is_complete_takes_no_further_word():
    """Two words have a probability of exactly 1/2 each, so the first word alone reaches `top_p`."""
    layer = built(AdaptiveSoftmax(4, ()), 1)
    layer.tables[0].assign(np.array([[-1e4], [0], [0], [-1e4]], "float32"))
    uniform = np.array([np.linspace(0, 0.99, 20)] * 2, "float32")
    for top_p, words in ((0.5, {1}), (0.51, {1, 2})):
        draw = lambda h, u, top_p=top_p: layer.sample_top_k(h, u, 1.0, 4, 4, top_p)  # noqa: E731
        assert set(runner(draw)(np.ones((20, 1), "float32"), uniform).tolist()) == words


@pytest.mark.parametrize("cutoffs", [CUTOFFS, ()], ids=str)
def test_targets_outside_the_vocabulary_have_no_score(softmax, hidden, cutoffs):
    softmax = softmax if cutoffs else plain()
    log_probs, ranks = runner(softmax.score)(hidden, np.full((3, 4), [-1, VOCABULARY, 999, -100], "int32"))
    assert not log_probs.any() and (ranks == 1).all()


@pytest.mark.parametrize("cutoffs", [CUTOFFS, ()], ids=str)
def test_a_score_computes_each_logit_once(softmax, hidden, cutoffs, monkeypatch):
    """The head once for all rows, and in a tail the rows of its targets or others, never both."""
    softmax = softmax if cutoffs else plain()
    logits, bands = BandedSoftmax._logits, []
    record = lambda self, x, band: bands.append((band, x.shape[0])) or logits(self, x, band)  # noqa: E731
    monkeypatch.setattr(BandedSoftmax, "_logits", record)
    targets = np.array([[0, 4, 5, 8], [9, 14, 15, 19]])
    softmax.score(hidden[:2], targets)
    assert [band for band, _ in bands].count(0) == 1
    if BACKEND == "torch":  # whose chunks are as long as they need to be
        rows = [sum(rows for number, rows in bands if number == band) for band in range(len(cutoffs) + 1)]
        assert rows[0] == 8 and max(rows) <= 8


def test_a_score_holds_the_logits_of_a_chunk():
    rows, vocabulary = 4 * chunk_sizes().max_rows, 64
    softmax = built(AdaptiveSoftmax(vocabulary, (40,), factor=2), DIM)
    random = np.random.default_rng(0)
    targets = random.integers(0, vocabulary, rows).astype("int32")
    states = random.normal(size=(rows, DIM)).astype("float32")
    score = lambda h: ops.sum(0 * h) + ops.sum(softmax.score(ops.stop_gradient(h), targets)[0])  # noqa: E731
    assert largest_array(score, states) <= chunk_sizes().max_rows * 48


@pytest.mark.parametrize("temperature, top_k", [(0.7, None), (1.3, 3), (1.0, 1)])
def test_numbers_may_be_tensors(softmax, hidden, temperature, top_k):
    """One compiled function for all temperatures and numbers of best words draws as `sample_from_uniform`."""
    uniform = np.random.default_rng(0).random((2, 3, 4), "float32")
    expected = runner(lambda h, u: softmax.sample_from_uniform(h, u, temperature, top_k))(hidden, uniform)
    if top_k is None:
        drawn = runner(softmax.sample_with_temperature)(hidden, uniform, np.float32(temperature))
    else:
        among = lambda *arguments: softmax.sample_top_k(*arguments, max_k=5)  # noqa: E731
        drawn = runner(among)(hidden, uniform, np.float32(temperature), np.int32(top_k))
    np.testing.assert_array_equal(drawn, expected)
