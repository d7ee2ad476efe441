"""A softmax that is trained on noise words. Otherwise it is an exact output, see `test_every_output.py`."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveSoftmax, LSTMDecoder, SampledSoftmax, WordEmbedding
from keras_adaptive.layers.regularization.seeds import micro_batch
from keras_adaptive.models import LanguageModel, WordModel
from keras_adaptive.ops.sampling import draw_noise
from tests.support import oracle
from tests.support.backends import BACKEND, numpy, runner
from tests.support.closeness import all_close, all_equal
from tests.support.tiny import batch, saved_and_loaded, weights_of
from tests.support.weights import built, randomize, value

VOCABULARY, DIM, SAMPLES = 20, 8, 6
COUNTS = np.arange(VOCABULARY)[::-1]
TARGETS = np.array([[0, 4, 5, 8, -1], [14, 4, 19, VOCABULARY, 0]], "int32")
WEIGHTS = np.linspace(0, 2, 10, dtype="float32").reshape(2, 5)
HIDDEN = np.random.default_rng(1).normal(size=(2, 5, DIM)).astype("float32")
ORACLES = {"importance_sampling": oracle.sampled_cross_entropy, "nce": oracle.noise_contrastive_loss}


def made(num_samples=SAMPLES, seed=3, **kwargs):
    return built(SampledSoftmax(VOCABULARY, num_samples, seed=seed, **kwargs), DIM)


def drawn_noise(layer, times=1):
    """Returns `[(ids, found, expected counts of all words)]` of the noise that a layer draws."""

    source = layer.noise

    def noise():
        probabilities = source.distribution.probabilities(ops.arange(VOCABULARY))
        drawn = (
            draw_noise(source.distribution, SAMPLES, source.candidates, layer.seed_generator) for _ in range(times)
        )
        return [(one.ids, one.found, one.expected_counts(probabilities)) for one in drawn]

    return runner(noise)()


def exact_loss(loss, layer, ids, counts):
    """Returns the loss on the noise words `ids`; `counts` (vocabulary,) are the expected ones of all words."""
    targets = np.where(TARGETS < VOCABULARY, TARGETS, -1).ravel()
    sampled = ids, np.where(targets >= 0, counts[targets], 1.0), counts[ids]
    table, bias = value(layer.tables[0]), value(layer.bias)
    return ORACLES[loss](HIDDEN.reshape(-1, DIM), table, bias, targets, WEIGHTS.ravel(), sampled)


@pytest.mark.parametrize("counts", [None, COUNTS], ids=["log-uniform", "unigram"])
@pytest.mark.parametrize("loss", ORACLES)
def test_the_training_loss_is_that_of_the_noise_of_the_seed(loss, counts):
    """The loss of targets in the vocabulary equals the oracle's; without training it is exact."""
    layer, alike = made(loss=loss, counts=counts), made(loss=loss, counts=counts)
    losses = lambda *arrays: [layer.training_loss(*arrays, training=one) for one in (True, True, False)]  # noqa: E731
    first, second, whole = runner(losses)(HIDDEN, TARGETS, WEIGHTS)
    expected = [exact_loss(loss, layer, ids, counts) for ids, _, counts in drawn_noise(alike, times=2)]
    np.testing.assert_allclose((first, second), expected, rtol=1e-5)
    np.testing.assert_allclose(whole, numpy(layer.total_nll(HIDDEN, TARGETS, WEIGHTS)), rtol=1e-6)


@pytest.mark.parametrize("loss", ORACLES)
def test_noise_words_that_were_not_found_do_not_count(loss):
    """Nearly all counts belong to two words, so the other places of the noise repeat a word."""
    counts = np.array([10**9, 10**9, *[1] * (VOCABULARY - 2)])
    layer, alike = made(loss=loss, counts=counts), made(loss=loss, counts=counts)
    total = runner(lambda *arrays: [layer.training_loss(*arrays, training=True)])(HIDDEN, TARGETS, WEIGHTS)[0]
    ((ids, found, expected),) = drawn_noise(alike)
    assert found.sum() == 2 and not found[2:].any()
    np.testing.assert_allclose(total, exact_loss(loss, layer, ids[found], expected), rtol=1e-5)


@pytest.mark.parametrize("counts", [None, COUNTS], ids=["log-uniform", "unigram"])
def test_nce_starts_from_the_distribution_of_the_noise(counts):
    layer = SampledSoftmax(VOCABULARY, SAMPLES, loss="nce", counts=counts)
    layer.build((None, DIM))
    expected = np.log(layer.noise.distribution.all_probabilities())
    np.testing.assert_allclose(numpy(layer.log_probs(np.zeros((1, DIM), "float32")))[0], expected, rtol=1e-5)


def test_the_noise_of_an_update_is_one_for_all_micro_batches_and_new_in_the_next():
    layer = made()

    def updates(*arrays):
        losses = []
        for number in (0, 1, 0):
            with micro_batch(number):
                losses.append(layer.training_loss(*arrays))
        return losses, layer.seed_generator.state.value

    (first, second, third), state = runner(updates)(HIDDEN, TARGETS, WEIGHTS)
    assert first == second != third
    np.testing.assert_array_equal(state, [3, 2])


def test_replicas_share_the_noise(monkeypatch):
    monkeypatch.setattr("keras_adaptive.layers.regularization.seeds.replica_index", lambda: 1)
    other = runner(made().training_loss)(HIDDEN, TARGETS, WEIGHTS)
    monkeypatch.undo()
    np.testing.assert_array_equal(other, runner(made().training_loss)(HIDDEN, TARGETS, WEIGHTS))


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_a_language_model_updates_the_words_of_targets_and_noise(tied, use_bias):
    """Micro-batches make the same update. The rows of the other words stay."""
    tokens, targets, weights = batch(4)
    found = []
    for parts in (1, 2):
        words = WordEmbedding(VOCABULARY, DIM)
        softmax = SampledSoftmax(VOCABULARY, 3, seed=1, tied_to=words if tied else None, use_bias=use_bias)
        model = randomize(LanguageModel(words, LSTMDecoder(1, DIM, DIM), softmax))
        model.compile(keras.optimizers.Adagrad(0.1), micro_batches=parts, run_eagerly=BACKEND == "tensorflow")
        before = weights_of(model)
        model.train_on_batch(tokens, targets, weights)
        found.append([new - old for new, old in zip(weights_of(model), before, strict=True)])
    all_close(*found, atol=1e-6)
    assert len(softmax.row_variables) == 1 + use_bias
    assert any(variable is softmax.seed_generator.state for variable in model.variables)  # for checkpoints
    noise = numpy(
        draw_noise(softmax.noise.distribution, 3, softmax.noise.candidates, keras.random.SeedGenerator(1)).ids
    )
    read = set(targets[weights > 0]) | set(noise) | (set(tokens[weights > 0]) if tied else set())
    changes = dict(zip([variable.path for variable in model.trainable_variables], found[0], strict=True))
    moved = np.flatnonzero(np.any(changes[softmax.tables[0].path] != 0, axis=1))
    assert set(targets[weights > 0]) <= set(moved) <= read and len(read) < VOCABULARY


def word_model():
    ids = keras.Input((None,), dtype="int32")
    words = WordEmbedding(VOCABULARY, DIM, name="words")
    hidden = keras.layers.Dense(DIM, activation="tanh")(words(ids))
    softmax = SampledSoftmax(VOCABULARY, SAMPLES, seed=1, tied_to=words, name="softmax")
    return WordModel(ids, hidden, word_output=softmax)


def test_a_word_model_learns_and_is_evaluated_exactly(tmp_path):
    """The next word is the word itself; the file holds all of it."""
    model = word_model()
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (32, 6)).astype("int32")
    model.compile(keras.optimizers.Adagrad(0.5), metrics=["accuracy"])
    before = model.evaluate(ids, ids, return_dict=True, verbose=0)["perplexity"]
    model.fit(ids, ids, epochs=40, batch_size=32, verbose=0)
    after = model.evaluate(ids, ids, return_dict=True, verbose=0)
    assert after["perplexity"] < 0.3 * before and after["accuracy"] > 0.8
    softmax = model.word_output
    table, bias = value(softmax.tables[0]), value(softmax.bias)
    hidden = model.predict(ids, verbose=0)
    log_probs = oracle.adaptive_log_probs(hidden, [table], [None], biases=[bias])
    nll = -np.mean(np.take_along_axis(log_probs, ids[..., None], axis=-1))
    np.testing.assert_allclose(after["perplexity"], np.exp(nll), rtol=1e-5)
    loaded = saved_and_loaded(model, tmp_path / "model.keras")
    assert loaded.word_output.tied_to is loaded.get_layer("words")
    assert loaded.word_output.get_config() == softmax.get_config()
    all_equal(weights_of(loaded), weights_of(model))


def test_it_adds_its_loss_to_any_model():
    hidden, targets = keras.Input((5, DIM)), keras.Input((5,), dtype="int32")
    softmax = SampledSoftmax(VOCABULARY, SAMPLES, counts=COUNTS, seed=1)
    model = keras.Model([hidden, targets], softmax(keras.layers.Dense(DIM)(hidden), targets))
    model.compile(keras.optimizers.Adagrad(0.5), run_eagerly=BACKEND == "tensorflow")
    data = [HIDDEN, np.maximum(TARGETS, 0) % VOCABULARY]
    before, _ = model.evaluate(data, verbose=0)
    model.fit(data, epochs=20, verbose=0)
    assert model.evaluate(data, verbose=0)[0] < 0.5 * before


@pytest.mark.parametrize("policy, tolerance", [("mixed_bfloat16", 2e-2), ("mixed_float16", 4e-3)])
@pytest.mark.parametrize("loss", ORACLES)
def test_mixed_precision(loss, policy, tolerance):
    narrow, wide = (made(loss=loss, dtype=dtype) for dtype in (policy, "float32"))
    for variable, of_wide in zip(narrow.variables, wide.variables, strict=True):
        variable.assign(of_wide.value)
    losses = [runner(layer.training_loss)(HIDDEN, TARGETS, WEIGHTS) for layer in (narrow, wide)]
    assert losses[0].dtype == "float32"
    np.testing.assert_allclose(*losses, rtol=tolerance)


@pytest.mark.once
def test_a_subclass_may_compute_the_vectors_of_words():
    class Doubled(SampledSoftmax):
        def vectors(self, ids):
            vectors, bias = super().vectors(ids)
            return 2 * vectors, 2 * bias

    layer, other = made(), built(Doubled(VOCABULARY, SAMPLES, seed=3), DIM)
    for variable, one in zip(other.trainable_variables, layer.trainable_variables, strict=True):
        variable.assign(one.value / 2)
    losses = [runner(one.training_loss)(HIDDEN, TARGETS, WEIGHTS) for one in (layer, other)]
    np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.once
def test_a_softmax_of_the_same_weights_has_the_same_probabilities():
    layer, plain = made(loss="nce", counts=COUNTS, use_bias=False), built(AdaptiveSoftmax(VOCABULARY, ()), DIM)
    plain.tables[0].assign(layer.tables[0].value)
    np.testing.assert_array_equal(numpy(plain.log_probs(HIDDEN)), numpy(layer.log_probs(HIDDEN)))
