"""The softmax whose vectors come from the bytes of words, against the formula and against a table of its vectors."""

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveSoftmax, CharCNN, CharCNNSoftmax, SampledSoftmax, WordEmbedding
from keras_adaptive.losses import ImportanceSampling
from keras_adaptive.models import LanguageModel
from tests.support import oracle, tiny
from tests.support.backends import BACKEND, numpy, runner, weight_gradients
from tests.support.toy_body import ToyBody
from tests.support.weights import built, randomize, value

pytestmark = pytest.mark.usefixtures("one_number_of_slots")

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = [*SPECIAL, "a", "the", "cat", "cut", "naïve", "日本", "seventeen_bytes_a"]
SIZES = {"char_dim": 4, "filters": (3, 4), "max_bytes": 8}
DIM, SAMPLES = 5, 4
MODULE = "keras_adaptive.layers.outputs.char_cnn_softmax"
random = np.random.default_rng(0)
HIDDEN = random.normal(size=(2, 3, DIM)).astype("float32")
TARGETS = np.array([[4, 5, -1], [10, 2, 5]], "int32")
WEIGHTS = np.array([[1.0, 2.0, 1.0], [0.5, 1.0, 0.0]], "float32")


def make(words=WORDS, **kwargs):
    options = {"correction_dim": 2, **SIZES, **kwargs}
    return built(CharCNNSoftmax(words, ImportanceSampling(SAMPLES, seed=3), **options), DIM)


def language_model():
    output = CharCNNSoftmax(tiny.WORDS, SAMPLES, correction_dim=2, **SIZES)
    return randomize(LanguageModel(WordEmbedding(tiny.VOCABULARY, 4), ToyBody(4), output))


def vectors(layer, words=()):
    """The vectors of all words of the vocabulary and of other words, by the formula."""
    weights = [value(variable) for variable in layer.char_cnn.trainable_variables]
    spelled = [b"", None, *weights[1], *(word.encode() for word in (*layer.words[4:], *words))]
    compute = lambda word: oracle.char_cnn(word, weights, layer.char_cnn.highways, 8)  # noqa: E731
    table = np.stack([np.zeros(DIM), *(compute(w) if isinstance(w, bytes) else w for w in spelled if w is not None)])
    table[[0, 1]] = table[[1, 0]]
    if layer.correction_dim:
        table[: len(layer.words)] += value(layer.corrections) @ value(layer.correction_projection)
    return table


@pytest.mark.parametrize("options", [{}, {"correction_dim": 0, "highways": 2}], ids=str)
def test_logits_are_those_of_the_spellings_and_of_the_corrections(options):
    layer = make(**options)
    expected = oracle.log_softmax(HIDDEN.astype("float64") @ vectors(layer).T)
    np.testing.assert_allclose(runner(layer.log_probs)(HIDDEN), expected, atol=2e-5)


def test_any_word_has_a_probability_once_the_vectors_are_computed():
    layer = make()
    exact = layer.for_inference()
    np.testing.assert_allclose(value(exact.tables[0]), vectors(layer), atol=2e-5)
    extra = ["catt", "cat"]
    wider = layer.for_inference(extra)
    assert wider.vocabulary_size == len(WORDS) + 2
    expected = oracle.log_softmax(HIDDEN.astype("float64") @ vectors(layer, extra).T)
    np.testing.assert_allclose(runner(wider.log_probs)(HIDDEN), expected, atol=2e-5)


def test_training_is_that_of_a_table_of_the_vectors():
    """The losses are equal, and a correction's gradient is the projected gradient of its word's vector."""
    layer, table = make(), SampledSoftmax(len(WORDS), SAMPLES, seed=3, use_bias=False)
    table.build((None, DIM))
    table.tables[0].assign(vectors(layer))
    (loss, (of_corrections,)), (expected, (of_table,)) = (
        weight_gradients(lambda one=one: one.training_loss(HIDDEN, TARGETS, WEIGHTS), variables)
        for one, variables in ((layer, [layer.corrections]), (table, table.tables))
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(of_corrections, of_table @ value(layer.correction_projection).T, atol=1e-5)
    assert layer.row_variables == [layer.corrections] and make(correction_dim=0).row_variables == []


@pytest.mark.once
def test_training_computes_the_words_that_it_needs_and_exact_methods_each_word_once(monkeypatch):
    layer, seen = make(), []

    def counting(self, ids):
        seen.append(tuple(ids.shape))
        return keras.ops.ones((*ids.shape, DIM))

    monkeypatch.setattr(CharCNN, "call", counting)
    layer.training_loss(HIDDEN, TARGETS, WEIGHTS)
    for method in (layer.nll, layer.score, layer.total_nll):
        method(HIDDEN, TARGETS)
    layer.alternatives(HIDDEN, TARGETS, 2)
    layer.top_k(HIDDEN, 2)
    layer.sample(HIDDEN, seed=1)
    assert seen == [(SAMPLES + TARGETS.size,)] + 6 * [(len(WORDS),)]
    assert not layer.tables


def test_a_large_vocabulary_is_computed_in_chunks(monkeypatch):
    layer, targets = make(), np.abs(TARGETS)
    expected = runner(layer.nll)(HIDDEN, targets)
    monkeypatch.setattr(f"{MODULE}.LOOKUP_ROWS", 4)
    np.testing.assert_allclose(runner(layer.nll)(HIDDEN, targets), expected, atol=1e-5)


@pytest.mark.usefixtures("eager_predictions")
def test_a_language_model_trains_and_predicts_with_it(tmp_path):
    model = language_model()
    model.compile(keras.optimizers.Adagrad(0.1), run_eagerly=BACKEND == "tensorflow")
    before = [value(variable) for variable in model.trainable_variables]
    tokens, targets, weights = tiny.batch(4)
    model.train_on_batch(tokens, targets, weights)
    assert all(np.any(value(new) != old) for new, old in zip(model.trainable_variables, before, strict=True))
    inference = tiny.saved_and_loaded(model, tmp_path / "model.keras").for_inference()
    assert type(inference.word_output) is AdaptiveSoftmax
    np.testing.assert_allclose(inference.nll(tokens, targets), model.nll(tokens, targets), atol=1e-5)


def test_evaluations_compute_the_vectors_once_each(monkeypatch):
    """The evaluations of `fit` compute the vectors once, too, from the weights at that time."""
    model = language_model()
    output = model.word_output
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=BACKEND == "tensorflow")
    tokens, targets, weights = tiny.batch(4)
    losses, seen, compute = [], [], CharCNNSoftmax.for_inference  # its calls
    monkeypatch.setattr(CharCNNSoftmax, "for_inference", lambda self: seen.append(1) or compute(self))
    for seed in (1, 2):
        randomize(output, seed)
        validation = {"validation_data": (tokens, targets, weights), "validation_batch_size": 2}
        found = model.fit(tokens, targets, **validation, verbose=0).history["val_loss"]
        found += model.evaluate(tokens, targets, sample_weight=weights, verbose=0)[:1]
        losses.append(np.average(numpy(output.nll(model(tokens), targets)), weights=weights))
        assert found == pytest.approx([losses[-1]] * 2, rel=1e-4)
    assert len(seen) == 4 and abs(losses[0] - losses[1]) > 0.01


@pytest.mark.parametrize("correction_dim, billions", [(0, 0.29), (128, 0.40)])
@pytest.mark.once
def test_the_published_sizes(correction_dim, billions):
    """Jozefowicz et al. 2016, table 1; the paper adds "100M" and has 0.39, the 793,471 corrections are 101.6M."""
    filters = (32, 32, 64, 128, 256, 512, 1024, 2048)
    options = {"highways": 2, "char_dim": 16, "filters": filters, "word_markers": True}
    with keras.StatelessScope(initialize_variables=False):
        layer = CharCNNSoftmax([*SPECIAL, "a"], 1, correction_dim=correction_dim, **options)
        layer.build((None, 1024))
    own = layer.count_params() + (793_471 - 5) * correction_dim
    assert round((own + 71_790_128 + 2 * 75_530_240) / 1e9, 2) == billions
