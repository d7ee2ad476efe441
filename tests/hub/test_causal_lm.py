import importlib
import sys

import keras
import numpy as np
import pytest

from keras_adaptive.data import TextCodec, Vocabulary
from keras_adaptive.models import LanguageModel
from tests.support.backends import BACKEND, numpy
from tests.support.refusals import refused
from tests.support.tiny import VOCABULARY, language_model, largest_difference, weights_of
from tests.support.transformers import load_exported

keras_hub = pytest.importorskip("keras_hub")

from keras_adaptive.hub import AdaptiveBackbone, AdaptiveCausalLM, AdaptiveCausalLMPreprocessor, AdaptiveTokenizer  # noqa: E402

pytestmark = pytest.mark.once


WORDS = Vocabulary.from_counts({f"w{number}": 99 - number for number in range(VOCABULARY - 4)}, multiple_of=1)
TEXTS = ["w1 w2 w3", "w0 unknown", "", "w4 w4 w5 w6 w7 w8 w9"]
ROWS = [[2, 5, 6, 7, 2, 1, 1], [2, 4, 3, 2, 1, 1, 1], [2, 2, 1, 1, 1, 1, 1], [2, 8, 8, 9, 10, 11, 2]]  # the last is cut
LENGTH = 6


def task_of(model, **kwargs):
    tokenizer = AdaptiveTokenizer(TextCodec(WORDS))
    return AdaptiveCausalLM(AdaptiveBackbone(model), AdaptiveCausalLMPreprocessor(tokenizer, LENGTH), **kwargs)


def inputs_of(rows):
    rows = np.array(rows, "int32")
    return {"token_ids": rows, "padding_mask": rows != 1}


@pytest.mark.each_backend
def test_it_generates_as_the_language_model():
    model = language_model()
    task = task_of(model)
    task.compile(sampler="greedy", jit_compile=BACKEND == "tensorflow")  # as by default on a GPU
    prompts = [[2, 5, 6, 7], [2, 4]]
    words = model.generate(list(map(np.array, prompts)), LENGTH - 2, temperature=0, stop=2)
    rows = [(prompt, new[: LENGTH - len(prompt)]) for prompt, new in zip(prompts, words)]
    new = [" ".join(WORDS.words[id] for id in row if id not in (1, 2)) for _, row in rows]
    assert task.generate(["w1 w2 w3", "w0"], strip_prompt=True) == new and any(new)
    assert task.generate(["w1 w2 w3", "w0"]) == [f"w1 w2 w3 {new[0]}".strip(), f"w0 {new[1]}".strip()]


@pytest.mark.each_backend
def test_it_trains_as_the_language_model_without_logits(monkeypatch):
    alone, model = language_model(), language_model()
    rows, how = np.array(ROWS, "int32"), {"micro_batches": 2, "run_eagerly": BACKEND == "tensorflow"}
    tokens, targets, weights = rows[:, :-1], rows[:, 1:], (rows[:, 1:] != 1).astype("float32")
    alone.compile(keras.optimizers.SGD(0.5, global_clipnorm=1.0), **how)
    expected = alone.fit(tokens, targets, sample_weight=weights, batch_size=4, epochs=2, verbose=0, shuffle=False)
    task = task_of(model)
    task.compile(keras.optimizers.SGD(0.5, global_clipnorm=1.0), **how)
    monkeypatch.setattr(type(model.word_output), "compute_log_probs", None)
    loss, perplexity = task.evaluate(TEXTS, batch_size=4, verbose=0)
    history = task.fit(TEXTS, batch_size=4, epochs=2, verbose=0)
    assert set(history.history) == set(expected.history)
    for name, values in expected.history.items():
        np.testing.assert_allclose(history.history[name], values, rtol=1e-4)
    assert largest_difference(model, alone) < 1e-5
    assert loss == pytest.approx(history.history["loss"][0], rel=1e-4)
    assert perplexity == pytest.approx(np.exp(loss), rel=1e-4)


@pytest.mark.each_backend
def test_a_preset_is_found_by_keras_hub(tmp_path):
    task = task_of(language_model())
    task.save_to_preset(str(tmp_path))
    loaded = keras_hub.models.CausalLM.from_preset(str(tmp_path))
    assert type(loaded) is AdaptiveCausalLM and loaded.preprocessor.sequence_length == LENGTH
    batch, other = task.preprocessor(TEXTS), loaded.preprocessor(TEXTS)
    for part, same in zip(keras.tree.flatten(numpy(batch)), keras.tree.flatten(numpy(other)), strict=True):
        np.testing.assert_array_equal(part, same)
    np.testing.assert_array_equal(numpy(batch[0])["token_ids"], [row[:-1] for row in ROWS])
    np.testing.assert_array_equal(numpy(batch[1]), [row[1:] for row in ROWS])
    np.testing.assert_allclose(numpy(loaded(other[0])), numpy(task(batch[0])), rtol=1e-5)


@pytest.mark.each_backend
def test_the_scores_are_those_of_the_language_model():
    model = language_model()
    task, tokens = task_of(model), np.array(ROWS, "int32")[:, :-1]
    targets = np.array(ROWS, "int32")[:, 1:]
    log_probs = model.log_probs(tokens)
    np.testing.assert_allclose(numpy(task.score(tokens)), log_probs, atol=1e-5)
    np.testing.assert_allclose(numpy(task(inputs_of(tokens))), log_probs, atol=1e-5)
    nll = numpy(task.score(tokens, scoring_mode="loss", target_ids=targets))
    np.testing.assert_allclose(nll, model.nll(tokens, targets), atol=1e-5)
    seen = {}
    task.score(tokens, layer_intercept_fn=lambda x, index: seen.setdefault(index, x))
    assert {index: tuple(x.shape) for index, x in seen.items()} == {-1: (4, 6, 8), 0: (4, 6, 8)}
    np.testing.assert_allclose(numpy(seen[0]), numpy(task.backbone(inputs_of(tokens))), atol=1e-5)


def test_the_export_for_transformers_answers_as_the_task(tmp_path):
    torch = pytest.importorskip("torch")
    task = task_of(language_model())
    task.export_to_transformers(tmp_path / "new")
    rows = np.array(ROWS[:1])
    with torch.no_grad():
        logits = load_exported(tmp_path / "new")(torch.from_numpy(rows)).logits
    np.testing.assert_allclose(logits, numpy(task.score(rows)), atol=1e-4)
    assert (tmp_path / "new" / "tokenizer.json").exists()
    without = AdaptiveCausalLM(AdaptiveBackbone(language_model()))
    refused(without.export_to_transformers, tmp_path / "other", match="give the task a preprocessor. Received: None")


def test_bad_arguments_and_methods():
    """Methods of Keras and KerasHub would do nothing to these layers, or half of what they say."""
    task = task_of(language_model())
    modes = "`scoring_mode` must be 'logits' or 'loss'. Received: scoring_mode='bits'"
    refused(task.score, np.array(ROWS), scoring_mode="bits", match=modes)
    refused(task.score, np.array(ROWS), scoring_mode="loss", match="needs `target_ids`")
    refused(task.fit, TEXTS, class_weight={0: 1.0}, match="`class_weight` is not available")
    refused(task.compile, loss="mse", match="has its own loss: leave out `loss`")
    task.preprocessor, ids = None, inputs_of([[2, 99]])
    outside = "from 0 to 19, .* Received: 1 ids outside this range"
    refused(task.train_on_batch, ids, np.array([[4, 5]]), match=outside)
    empty = inputs_of([[2, 1], [1, 1]])
    refused(task.generate, empty, stop_token_ids=None, match="Every prompt must have a token")
    for method in (task.quantize, task.backbone.quantize):
        refused(method, "int8", error=NotImplementedError, match="cannot be quantized")
    refused(task.backbone.enable_lora, 4, error=NotImplementedError, match="has no LoRA. Freeze parts of it instead")


def test_a_saved_task_goes_on_training(tmp_path):
    task = task_of(language_model(dropout=0.1))
    task.compile(keras.optimizers.Adam(1e-2), sampler=keras_hub.samplers.TopPSampler(p=0.5, seed=1), micro_batches=2)
    task.train_on_batch(TEXTS)
    task.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert loaded.sampler.p == 0.5 and loaded.language_model.micro_batches == 2
    for one in (task, loaded):
        one.train_on_batch(TEXTS)
    assert largest_difference(loaded.language_model, task.language_model) == 0


def test_a_preset_keeps_frozen_parts_frozen_and_leaves_out_the_optimizer(tmp_path):
    model = language_model()
    model.word_input.trainable = False
    task = task_of(model)
    task.train_on_batch(TEXTS)
    task.save_to_preset(str(tmp_path))
    loaded = AdaptiveCausalLM.from_preset(str(tmp_path))
    assert loaded.optimizer.iterations == 0
    assert not loaded.language_model.word_input.trainable_variables
    assert largest_difference(loaded, task) == 0


def test_the_dtype_of_a_preset(tmp_path):
    task = task_of(language_model())
    task.save_to_preset(str(tmp_path))
    loaded = AdaptiveCausalLM.from_preset(str(tmp_path), dtype="bfloat16")
    assert {str(one.dtype) for one in loaded.trainable_variables} == {"bfloat16"}
    for half, full in zip(weights_of(loaded), weights_of(task), strict=True):
        np.testing.assert_allclose(half.astype("float32"), full, rtol=1e-2)


def test_another_dtype_copies_the_model():
    model = language_model()
    assert AdaptiveBackbone(model, dtype="float32").language_model is model
    copy = AdaptiveBackbone(model, dtype="bfloat16").language_model
    assert isinstance(copy, LanguageModel) and copy.body.dtype_policy.name == "bfloat16" != model.body.dtype_policy.name


def test_a_task_of_a_run(tmp_path):
    model = language_model()
    AdaptiveTokenizer(TextCodec(WORDS)).save_assets(tmp_path)
    refused(AdaptiveCausalLM.from_run, tmp_path, match="holds no best.keras")
    model.save(tmp_path / "best.keras")
    task = AdaptiveCausalLM.from_run(tmp_path)
    assert task.preprocessor.sequence_length == 1024 and largest_difference(task.language_model, model) == 0
    assert task.preprocessor.tokenizer("w1 w2").tolist() == [5, 6]
    assert AdaptiveCausalLM.from_run(tmp_path, sequence_length=9).preprocessor.sequence_length == 9


def test_the_summary_counts_every_weight_once(capsys):
    task = task_of(language_model(), compile=False)
    task.summary(print_fn=print)
    assert f"{sum(weight.size for weight in weights_of(task)):,}" in capsys.readouterr().out


def test_keras_hub_that_is_missing(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("keras_adaptive.hub")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install \"keras_adaptive\[hub\]\""):
        importlib.import_module("keras_adaptive.hub")
