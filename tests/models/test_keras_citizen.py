"""What Keras offers for every model does the right thing for a LanguageModel, or says that it cannot."""

import io

import keras
import numpy as np
import pytest

from keras_adaptive.models import LanguageModel, WordModel
from keras_adaptive.optimizers import NAG
from tests.support.backends import BACKEND
from tests.support.closeness import all_equal
from tests.support.refusals import refused
from tests.support.tiny import VOCABULARY, batch, compiled, language_model, largest_difference

TOKENS, TARGETS, _ = batch(4)


@pytest.fixture(scope="module")
def model():
    return language_model(dtype="float32")


def test_layers_and_summary_hold_the_output(model):
    assert model.layers[1:] == [model.word_input, model.body, model.word_output]
    assert model.get_layer("word_output") is model.word_output
    printed = io.StringIO()
    model.summary(print_fn=lambda line: printed.write(line))
    assert all(name in printed.getvalue() for name in ("word_input", "body", "word_output"))
    assert f"{model.count_params():,}" in printed.getvalue()


def test_the_call_gives_hidden_states(model):
    hidden = model(TOKENS)
    assert tuple(hidden.shape) == (*TOKENS.shape, 8)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(model.word_output.nll(hidden, TARGETS)), model.nll(TOKENS, TARGETS), atol=5e-6
    )


def test_predict_gives_the_log_probabilities_of_the_next_word(model):
    expected = model.log_probs(TOKENS)[:, -1]
    np.testing.assert_allclose(model.predict(TOKENS, batch_size=3, verbose=0), expected, atol=5e-6)
    np.testing.assert_allclose(np.exp(expected).sum(axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(TOKENS), expected, atol=5e-6)
    for method in (model.predict, model.predict_on_batch):
        refused(method, TOKENS + VOCABULARY, match="`tokens` must be ids from 0 to 19")


@pytest.mark.skipif(BACKEND == "torch", reason="Keras exports no SavedModel from torch")
@pytest.mark.filterwarnings("ignore:The `native_serialization` parameter is deprecated:DeprecationWarning")  # of JAX
def test_export_writes_what_predict_computes(model, tmp_path):
    tensorflow = pytest.importorskip("tensorflow")
    model.export(tmp_path / "model", verbose=False)
    loaded = tensorflow.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_allclose(np.asarray(loaded.serve(TOKENS)), model.predict(TOKENS, verbose=0), atol=5e-6)


@pytest.mark.once
def test_a_model_that_is_not_finite_is_not_exported(tmp_path):
    model = language_model()
    model.word_output.class_table.assign(np.nan * model.word_output.class_table.value)
    match = "must have finite weights. Received: infinity or NaN in .*class_table"
    refused(model.export, tmp_path / "model", verbose=False, match=match)
    assert not list(tmp_path.iterdir())


def test_onnx_is_written_by_this_package(model, tmp_path):
    words = WordModel(model.inputs, model.outputs, word_output=model.word_output)
    for exported in (model, words):
        match = "by `keras_adaptive.export.export_onnx.* Received: format='onnx'"
        refused(exported.export, tmp_path / "model.onnx", format="onnx", match=match)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("copy", ["clone_model", "from_config", "model_from_json"])
def test_copies_are_language_models_of_their_own(model, copy):
    copies = {
        "clone_model": keras.models.clone_model,
        "from_config": lambda one: LanguageModel.from_config(one.get_config()),
        "model_from_json": lambda one: keras.models.model_from_json(one.to_json()),
    }
    other = copies[copy](model)
    assert type(other) is LanguageModel and other.name == model.name
    assert other.count_params() == model.count_params()
    assert other.word_output.tied_to is other.word_input is not model.word_input
    other.set_weights(model.get_weights())
    np.testing.assert_allclose(other.nll(TOKENS, TARGETS), model.nll(TOKENS, TARGETS), atol=2e-6)
    before = language_model(dtype="float32")
    compiled(other, NAG(1.0, momentum=0.9)).fit(TOKENS, TARGETS, batch_size=4, verbose=0)
    assert largest_difference(model, before) == 0 < largest_difference(other, before)


def test_a_clone_of_a_compiled_model_is_compiled():
    model = compiled(language_model(), NAG(0.5, momentum=0.9), micro_batches=2)
    clone = keras.models.clone_model(model)
    assert clone.micro_batches == 2 and clone.optimizer.momentum == 0.9


def test_the_functions_that_are_compiled_do_not_grow_with_the_temperatures(model):
    prompt = TOKENS[:2, :2]
    for temperature, top_k in [(0.0, None), (1.0, None), (0.5, None), (0.7, 5), (1.3, 6), (0.9, None), (2.0, 10)]:
        words = model.generate(prompt, 2, temperature=temperature, top_k=top_k, seed=1)
        assert words.shape == (2, 2)
    keys = {key for key in model._functions._made if key[0] == "step"}
    assert keys == {("step", "greedy", 0), ("step", "exact", 0), ("step", "tempered", 0), ("step", 10, 0)}
    sharp = model.generate(prompt, 4, temperature=1e-3, seed=1)
    np.testing.assert_array_equal(sharp, model.generate(prompt, 4, temperature=0))
    np.testing.assert_array_equal(model.generate(prompt, 4, temperature=5.0, top_k=1, seed=3), sharp)


def test_one_function_gives_any_number_of_alternatives(model):
    *scores, best, ids = model.alternatives(TOKENS, TARGETS, 5)
    *same, fewer, fewer_ids = model.alternatives(TOKENS, TARGETS, 2)
    all_equal((*same, fewer, fewer_ids), (*scores, best[..., :2], ids[..., :2]))
    keys = {key for key in model._functions._made if key[0] == "segments"}
    assert keys == {("segments", ("alternatives", 10))}
    for k in (0, VOCABULARY + 1):
        refused(model.alternatives, TOKENS, TARGETS, k, match=f"`k` must be between 1 and 20. Received: k={k}")


@pytest.mark.once
def test_prompts_are_checked_once(model, monkeypatch):
    from keras_adaptive.models import prediction

    checked = []
    check = prediction.check_ids
    monkeypatch.setattr(prediction, "check_ids", lambda *args: checked.append(1) or check(*args))
    model.generate(TOKENS[:3, :2], 2)
    assert len(checked) == 1
