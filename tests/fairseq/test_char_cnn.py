"""A language model with a character CNN against fairseq's own numbers: its padding vector is not zero."""

import argparse

import keras
import numpy as np
import pytest

from keras_adaptive import fairseq
from keras_adaptive.data import Vocabulary
from keras_adaptive.fairseq.weights import table
from tests.support.backends import runner
from tests.support.weights import check_published_gradients, published_ids

CHARACTERS = "decoder.embed_tokens.char_embeddings.weight"


@pytest.fixture(autouse=True, scope="module")
def two_numbers_of_slots():
    """5 and 50, to compile less."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("keras_adaptive.layers.inputs.char_cnn.SLOTS", (5,))
        yield


@pytest.fixture(scope="module")
def case(golden):
    arrays, config = golden("char_cnn")
    weights = {name.removeprefix("param/"): array for name, array in arrays.items() if name.startswith("param/")}
    checkpoint = fairseq.Checkpoint(config["args"], None, config["arch"], weights, 3.0)
    return arrays, checkpoint, fairseq.build_language_model(checkpoint, Vocabulary.load(golden.folder / "dict.txt"))


@pytest.mark.once
def test_the_padding_vector_is_no_zero(case):
    arrays, _, model = case
    padding = arrays[f"param/{CHARACTERS}"][0]
    assert np.abs(padding).max() > 0.01
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(model.word_input.table.value)[0], padding)


def test_word_vectors(case):
    arrays, _, model = case
    tokens, _ = published_ids(arrays)
    np.testing.assert_allclose(runner(model.word_input)(tokens), arrays["out/embed_tokens"], atol=1e-5)
    looked_up = runner(model.for_inference().word_input)(tokens)
    np.testing.assert_allclose(looked_up, arrays["out/embed_tokens"], atol=1e-5)


def test_log_probs_and_nll(case):
    arrays, _, model = case
    tokens, targets = published_ids(arrays)
    np.testing.assert_allclose(model.log_probs(tokens[:1]), arrays["out/log_probs"], atol=1e-5)
    np.testing.assert_allclose(np.where(targets == 1, 0, model.nll(tokens, targets)), arrays["out/nll"], atol=1e-5)


def test_gradients(case):
    arrays, _, model = case
    pairs = [pair for tensor in table(model) for pair in tensor.split(arrays[f"grad/{tensor.name}"])]
    gradients = check_published_gradients(model, arrays, pairs)
    (padding,) = (
        gradient[0] for (variable, _), gradient in zip(pairs, gradients) if variable is model.word_input.table
    )
    assert not padding.any()  # is not trained


@pytest.mark.once
def test_out_again_and_in_again(case, golden, tmp_path):
    torch = pytest.importorskip("torch")
    arrays, checkpoint, model = case
    state = fairseq.to_state_dict(model)
    for name, array in checkpoint.weights.items():
        np.testing.assert_array_equal(state[name].numpy(), array, err_msg=name)
    torch.save({"args": argparse.Namespace(**checkpoint.options), "model": state}, tmp_path / "model.pt")
    again, _ = fairseq.load_language_model(tmp_path / "model.pt", golden.folder / "dict.txt")
    tokens, _ = published_ids(arrays)
    np.testing.assert_array_equal(again.log_probs(tokens[:1]), model.log_probs(tokens[:1]))


@pytest.mark.once
def test_saved_and_loaded(case, tmp_path):
    arrays, _, model = case
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    tokens, _ = published_ids(arrays)
    np.testing.assert_array_equal(runner(again.word_input)(tokens), runner(model.word_input)(tokens))


@pytest.mark.once
def test_a_model_of_ours_is_written_with_the_zeros_that_it_reads(case, golden):
    """The model's table keeps any numbers in the row of padding, which fairseq would use."""
    pytest.importorskip("torch")
    arrays, checkpoint, model = case
    config = {**model.word_input.get_config(), "zero_padding": True}
    own = type(model)(type(model.word_input).from_config(config), model.body, model.word_output)
    own.word_input.build()
    for mine, variable in zip(own.word_input.variables, model.word_input.variables, strict=True):
        mine.assign(variable.value)
    state = fairseq.to_state_dict(own)
    assert not state[CHARACTERS][0].any()
    np.testing.assert_array_equal(state[CHARACTERS][1:].numpy(), arrays[f"param/{CHARACTERS}"][1:])
    weights = {name: state[name].numpy() for name in checkpoint.weights}
    vocabulary = Vocabulary.load(golden.folder / "dict.txt")
    tokens, _ = published_ids(arrays)
    again = fairseq.build_language_model(checkpoint._replace(weights=weights), vocabulary)
    np.testing.assert_allclose(again.log_probs(tokens[:1]), own.log_probs(tokens[:1]), atol=1e-5)
    assert np.abs(own.log_probs(tokens[:1]) - arrays["out/log_probs"]).max() > 0.01  # what this file is about
