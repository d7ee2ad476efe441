"""Language models of every input and output: training, files, prediction, and the model for inference."""

import functools

import keras
import numpy as np
import pytest

from keras_adaptive.layers import WordEmbedding
from keras_adaptive.optimizers import NAG
from tests.support.backends import numpy
from tests.support.refusals import refused
from tests.support.tiny import VOCABULARY, batch, largest_difference, system

pytestmark = pytest.mark.usefixtures("one_number_of_slots", "eager_predictions")
TOKENS, TARGETS, _ = batch(2)
untrained = functools.cache(system)  # one for all tests, which compile its functions once


@pytest.fixture(scope="module", autouse=True)
def only_here():
    yield
    untrained.cache_clear()


@pytest.fixture(params=["SM", "SM-T", "ASM", "ASM-T", "CNN"])
def model(request):
    return untrained(request.param)


def test_predictions_agree(model):
    log_probs, nll = model.log_probs(TOKENS), model.nll(TOKENS, TARGETS)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(-np.take_along_axis(log_probs, TARGETS[..., None], -1)[..., 0], nll, atol=1e-5)
    changed = np.array(TOKENS)
    changed[:, 3] = (changed[:, 3] + 1) % VOCABULARY
    np.testing.assert_array_equal(model.log_probs(changed)[:, :3], log_probs[:, :3])


def test_the_model_for_inference_is_the_same_function(model):
    inference = model.for_inference()
    assert isinstance(inference.word_input, WordEmbedding)
    np.testing.assert_allclose(inference.nll(TOKENS, TARGETS), model.nll(TOKENS, TARGETS), atol=1e-5)
    np.testing.assert_array_equal(inference.generate(TOKENS, 4, seed=3), model.generate(TOKENS, 4, seed=3))


def test_training_reduces_the_loss_and_files_keep_the_model(model, tmp_path):
    tokens, targets, weights = batch(8)
    begun = model.get_weights()
    parts = 2 if isinstance(model.word_input, WordEmbedding) else 1  # whose gradients may be sparse
    model.compile(NAG(0.05, momentum=0.9, global_clipnorm=1.0), micro_batches=parts)
    losses = model.fit(tokens, targets, sample_weight=weights, batch_size=8, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.95 * losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert largest_difference(loaded, model) == 0
    np.testing.assert_allclose(numpy(loaded(tokens[:2])), numpy(model(tokens[:2])), atol=1e-6)
    model.set_weights(begun)


def test_words_outside_the_vocabulary_enter_by_their_bytes():
    model = untrained("CNN")
    inference = model.for_inference(["word0", "other"])
    known, extra, unknown = (np.array(TOKENS) for _ in range(3))
    known[:, 2], extra[:, 2], unknown[:, 2] = 4, VOCABULARY, 3  # WORDS[4] is "word0"
    np.testing.assert_allclose(inference.nll(extra, TARGETS), model.nll(known, TARGETS), atol=1e-5)
    assert np.abs(inference.nll(extra, TARGETS) - model.nll(unknown, TARGETS)).max() > 1e-3
    refused(inference.nll, TOKENS, extra, match="targets")
    refused(untrained("ASM").for_inference, ["word"], match="CharCNN")


@pytest.mark.parametrize("name, largest, mean", [("SM-T", 0.015, 0.005), ("CNN", 0.15, 0.04)])
def test_bfloat16_is_near_float32(name, largest, mean):
    narrow, wide = system(name, "mixed_bfloat16").nll(TOKENS, TARGETS), untrained(name).nll(TOKENS, TARGETS)
    differences = np.abs(narrow - wide)
    assert 1e-4 < differences.max() < largest and differences.mean() < mean


def test_tied_words_are_stored_once():
    tied, untied = untrained("SM-T"), untrained("SM")
    assert untied.count_params() - tied.count_params() == VOCABULARY * 4
    assert tied.word_output.tables[0] is tied.word_input.tables[0]
