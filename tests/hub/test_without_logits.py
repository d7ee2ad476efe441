"""Tasks of KerasHub train without their logits as they did with them."""

import keras
import numpy as np
import pytest

from keras_adaptive.models import without_logits
from tests.support.backends import BACKEND
from tests.support.closeness import all_close
from tests.support.without_logits import assert_equal, with_and_without

keras_hub = pytest.importorskip("keras_hub")

VOCABULARY, LENGTH = 50, 6
IDS = np.random.default_rng(0).integers(0, VOCABULARY, size=(4, LENGTH + 1))
INPUTS = {"token_ids": IDS[:, :-1], "padding_mask": (np.arange(LENGTH) < [[6], [3], [4], [5]]).astype("int32")}
HEADS = {"num_query_heads": 2, "num_key_value_heads": 1}
SIZES = {"vocabulary_size": VOCABULARY, "num_layers": 1, "hidden_dim": 8, "intermediate_dim": 16}
TASKS = {
    "Gemma": {**HEADS, "head_dim": 4, "final_logit_soft_cap": 2.0},
    "Gemma3": {**HEADS, "head_dim": 4, "image_size": None},
    "Llama3": HEADS,
    "Qwen3": {**HEADS, "head_dim": 4},
    "Mistral": HEADS,
    "Phi3": HEADS,
    "GPT2": {"num_heads": 2, "max_sequence_length": LENGTH, "dropout": 0.0},
}


def task(name):
    keras.utils.set_random_seed(1)
    backbone = getattr(keras_hub.models, f"{name}Backbone")(**SIZES, **TASKS[name])
    return getattr(keras_hub.models, f"{name}CausalLM")(backbone=backbone, preprocessor=None)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_takes_the_same_updates(name):
    weights = INPUTS["padding_mask"].astype("float32")
    plain, ours = with_and_without(lambda: task(name), INPUTS, IDS[:, 1:], weights, batch_size=2)
    assert_equal(plain, ours)
    assert all(set(logs) == {"loss", "sparse_categorical_accuracy"} for logs in plain[:2])


def test_it_generates_and_is_saved_as_before(tmp_path):
    model, plain = without_logits(task("GPT2")), task("GPT2")
    prompts = {"token_ids": IDS[:, :LENGTH], "padding_mask": np.broadcast_to(np.arange(LENGTH) < 3, (4, LENGTH))}
    for each in (model, plain):
        each.compile(sampler="greedy")
    words = [each.generate(dict(prompts), stop_token_ids=None)["token_ids"] for each in (model, plain)]
    np.testing.assert_array_equal(*words)
    model.save_to_preset(str(tmp_path / "preset"))
    loaded = keras_hub.models.CausalLM.from_preset(str(tmp_path / "preset"), preprocessor=None)
    assert type(loaded) is keras_hub.models.GPT2CausalLM
    all_close(loaded.predict(INPUTS, verbose=0), plain.predict(INPUTS, verbose=0), atol=1e-6)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`", "ignore:The use of `x.T`")
@pytest.mark.parametrize("quantized", [False, True])
def test_low_rank_adapters_train_alone(quantized):
    model = without_logits(task("Gemma"))
    if quantized:
        model.quantize("int8")
    model.backbone.enable_lora(2)
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=BACKEND == "tensorflow")
    losses = model.fit(INPUTS, IDS[:, 1:], epochs=3, verbose=0, shuffle=False).history["loss"]
    assert losses[2] < losses[1] < losses[0]
    assert not model.backbone.token_embedding.trainable_variables
    assert all("lora" in variable.path for variable in model.trainable_variables)
