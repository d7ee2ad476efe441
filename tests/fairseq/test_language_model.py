"""Published checkpoints in and out, against fairseq's own numbers."""

import argparse
import math
import os
import pickle
import re
import sys
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_adaptive import fairseq
from keras_adaptive.data import SPECIAL_WORDS, Vocabulary
from keras_adaptive.fairseq.options import build_model, resolve
from keras_adaptive.layers import (
    AdaptiveSoftmax,
    CausalAttention,
    CharCNN,
    TransformerBlock,
    TransformerDecoder,
    WordEmbedding,
)
from keras_adaptive.models import assemble, transformer, transformer_lm
from tests.support.refusals import refused
from tests.support.tiny import largest_difference, weights_of
from tests.support.toy_body import ToyBody, ToyMixer
from tests.support.weights import randomize

pytestmark = pytest.mark.once

torch = pytest.importorskip("torch")

PUBLISHED = Path(__file__).parent / "published"
CHECKPOINTS = sorted(path.stem for path in PUBLISHED.glob("*.pt"))


def published(name):
    return fairseq.load_language_model(PUBLISHED / f"{name}.pt", PUBLISHED / "dict.txt")


@pytest.fixture
def reload(load, tmp_path):
    """`reload(contents)` saves the contents of a checkpoint and loads the model of it."""

    def reload(contents, **kwargs):
        torch.save(contents, tmp_path / "model.pt", **kwargs)
        return load(tmp_path / "model.pt")[0]

    return reload


@pytest.mark.each_backend
def test_the_golden_checkpoint(golden, load):
    arrays, _ = golden("transformer_lm")
    model, vocabulary = load(golden.folder / "transformer_lm_fairseq.pt")
    assert len(vocabulary) == model.vocabulary_size == 1000
    tokens, targets = (arrays[f"in/{name}"].astype("int32") for name in ("src_tokens", "targets"))
    real = targets != 1
    rows = len(arrays["out/log_probs"])
    np.testing.assert_allclose(model.log_probs(tokens[:rows]), arrays["out/log_probs"], atol=1e-4)
    nll = model.nll(tokens, targets)
    np.testing.assert_allclose(np.where(real, nll, 0), arrays["out/nll"], atol=1e-4)
    nll = nll[real].astype("float64")
    assert math.exp(nll.mean()) == pytest.approx(math.exp(arrays["out/nll"][real].astype("float64").mean()), rel=1e-5)
    blocks = model.body.blocks
    assert model.body.dropout == 0.3
    assert {(b.dropout, b.attention.dropout, b.activation_dropout) for b in blocks} == {(0.3, 0.1, 0.1)}
    assert (model.word_output.tail_dropout, model.word_output.input_dropout) == (0.2, 0.2)


def test_a_checkpoint_with_linear_biases_does_not_say_so(golden, load):
    arrays, _ = golden("alibi")
    path = golden.folder / "alibi_fairseq.pt"
    refused(load, path, match="--positions=alibi")
    model, _ = fairseq.load_language_model(path, golden.folder / "dict.txt", positions="alibi")
    assert model.body.positions is None and model.body.extrapolates and model.trained_length == 16
    tokens, targets = (arrays[f"in/{name}_long"].astype("int32") for name in ("src", "target"))
    np.testing.assert_allclose(np.where(targets != 1, model.nll(tokens, targets), 0), arrays["out/nll_long"], atol=2e-5)
    refused(fairseq.to_state_dict, model, match="fairseq has no model with positions=alibi: its weights")


@pytest.mark.each_backend
def test_shortformer(golden, load):
    arrays, _ = golden("shortformer")
    model, _ = load(golden.folder / "shortformer_fairseq.pt")
    assert model.body.positions is None and model.trained_length == 12
    tokens, targets = (
        np.concatenate([arrays[f"in/{name}_{block}"] for block in (1, 2, 3)], axis=1) for name in ("src", "target")
    )
    nll = np.concatenate([arrays[f"out/nll_{block}"] for block in (1, 2, 3)], axis=1)
    np.testing.assert_allclose(model.nll(tokens, targets), nll, atol=2e-5)
    refused(fairseq.to_state_dict, model, match="fairseq has no model with mixer=PositionInfusedAttention: its weights")


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.each_backend
def test_published_numbers(name, monkeypatch):
    monkeypatch.setattr("keras_adaptive.layers.inputs.char_cnn.SLOTS", (5,))  # to compile less
    model, _ = published(name)
    with np.load(PUBLISHED / "log_probs.npz") as expected:
        np.testing.assert_allclose(model.log_probs(expected["tokens"]), expected[name], atol=2e-5)


@pytest.mark.parametrize("name", [name for name in CHECKPOINTS if not name.startswith("version")])
def test_out_again_is_exact(name):
    state = fairseq.to_state_dict(published(name)[0])
    expected = torch.load(PUBLISHED / f"{name}.pt", weights_only=True)["model"]
    assert state.keys() == expected.keys()
    for key, tensor in state.items():
        assert tensor.dtype == expected[key].dtype and tensor.shape == expected[key].shape, key
        assert torch.equal(tensor, expected[key]) or key.endswith("_float_tensor"), key  # which is never set


OPTIONS = {
    "decoder_embed_dim": 8, "decoder_ffn_embed_dim": 12, "decoder_layers": 1, "decoder_attention_heads": 2,
    "adaptive_softmax_cutoff": "100,300", "adaptive_input_cutoff": "100,300", "adaptive_input_factor": 2.0,
    "adaptive_softmax_factor": 2.0,
}  # fmt: skip
MODELS = {  # that are not among the published ones
    "fixed": {"decoder_input_dim": 4, "no_token_positional_embeddings": True},
    "adaptive, words tied": {"adaptive_input": True, "tie_adaptive_weights": True, "layernorm_embedding": True},
    "softmax": {"adaptive_softmax_cutoff": None, "decoder_normalize_before": False},
}


@pytest.mark.parametrize("name", MODELS)
def test_our_own_out_and_in_again(name, golden, reload):
    options = OPTIONS | MODELS[name]
    vocabulary = Vocabulary.load(golden.folder / "dict.txt")
    given = fairseq.Checkpoint(options, None, "transformer_lm", {}, 3.0)
    model = randomize(build_model(resolve(given), vocabulary))
    again = reload({"args": argparse.Namespace(**options), "model": fairseq.to_state_dict(model)})
    assert largest_difference(model, again) == 0
    assert again.body.get_config() == model.body.get_config()


def test_old_files_name_shared_words_once(golden, reload):
    options = OPTIONS | {"adaptive_softmax_cutoff": None, "share_decoder_input_output_embed": True}
    given = fairseq.Checkpoint(options, None, "transformer_lm", {}, 3.0)
    model = build_model(resolve(given), Vocabulary.load(golden.folder / "dict.txt"))
    state = fairseq.to_state_dict(model)
    del state["decoder.output_projection.weight"]
    assert largest_difference(model, reload({"args": argparse.Namespace(**options), "model": state})) == 0


@pytest.mark.each_backend
def test_the_file_is_needed_no_longer(read, reload):
    model = reload(read)
    before = [np.copy(array) for array in weights_of(model)]
    read["model"] = {name: torch.zeros_like(tensor) for name, tensor in read["model"].items()}
    reload(read)  # writes over it
    assert all(np.array_equal(*pair) for pair in zip(before, weights_of(model), strict=True))


def test_half_precision_is_read(read, reload):
    model = reload(read)
    read["model"] = {name: tensor.half() for name, tensor in read["model"].items()}
    assert 0 < largest_difference(reload(read), model) < 1e-3


def test_an_old_file_of_the_same_model(read, reload):
    """Files before 0.8 have a namespace, fused projections, older names and no final norm by their version."""
    model, options, old = reload(read), read["cfg"]["model"], dict(read["model"])
    options |= {"no_tie_adaptive_proj": False, "relu_dropout": 0.1, "arch": "transformer_lm_wiki103"}
    for name in ("no_decoder_final_norm", "tie_adaptive_proj", "activation_fn", "activation_dropout"):
        del options[name]
    for layer in range(3):
        attention = f"decoder.layers.{layer}.self_attn"
        for kind in ("weight", "bias"):
            old[f"{attention}.in_proj_{kind}"] = torch.cat([old.pop(f"{attention}.{p}_proj.{kind}") for p in "qkv"])
            for number, norm in ((0, "self_attn_layer_norm"), (2, "final_layer_norm")):
                value = old.pop(f"decoder.layers.{layer}.{norm}.{kind}")
                old[f"decoder.layers.{layer}.layer_norms.{number}.{kind}"] = value
    old["decoder.version"] = torch.tensor([2.0])
    old["decoder.embed_positions.weights"] = torch.zeros(66, 32)
    contents = {"args": argparse.Namespace(**options), "model": old}
    again = reload(contents, _use_new_zipfile_serialization=False)
    assert largest_difference(model, again) == 0
    assert again.body.get_config() == model.body.get_config()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"scale_fc": True, "base_layers": 2}, "not supported: base_layers=2, scale_fc=True."),
        ({"activation_fn": "swish"}, "not supported: activation_fn=swish."),
        ({"alibi": True}, "not supported: alibi=True."),
        ({"_name": "fconv_lm"}, "not supported: arch=fconv_lm."),
        ({"character_embeddings": True, "character_filters": "[(2, 4), (1, 4)]"}, "character_filters=[(2, 4), (1, 4)]"),
        ({"adaptive_softmax_cutoff": "print(1)"}, "The options contain 'print(1)' in place of numbers"),
        ({"adaptive_softmax_cutoff": "1000"}, "without tails is not supported: adaptive_softmax_cutoff=1000"),
        ({"output_dictionary_size": 500}, "not supported: output_dictionary_size=500"),
    ],
)
def test_options_that_are_not_supported_are_named(read, reload, options, message):
    read["cfg"]["task" if "output_dictionary_size" in options else "model"] |= options
    refused(reload, read, match=re.escape(message))


def test_wrong_tensors_are_listed_together(read, reload):
    weights = read["model"]
    del weights["decoder.layers.1.fc1.bias"], weights["decoder.adaptive_softmax.tail.0.2.weight"]
    weights["decoder.extra"] = torch.zeros(2)
    weights["decoder.layers.0.fc2.weight"] = torch.zeros(32, 63)
    with pytest.raises(ValueError) as error:
        reload(read)
    assert str(error.value).endswith(
        "missing: decoder.layers.1.fc1.bias, decoder.adaptive_softmax.tail.0.2.weight; "
        "not part of the model: decoder.extra; "
        "of another shape: decoder.layers.0.fc2.weight (32, 63) instead of (32, 64)."
    )


def test_tied_tensors_that_differ_are_named(read, reload):
    name = "decoder.adaptive_softmax.tail.1.2.weight"
    read["model"][name] = read["model"][name] + 1
    refused(reload, read, match="different from the tensors they are tied to: decoder.adaptive_softmax.tail.1.2.weigh")


def test_a_dictionary_of_another_size(golden):
    with pytest.raises(ValueError, match="dictionary of 1,000 words, including the four .* Received: 120 words"):
        fairseq.load_language_model(golden.folder / "transformer_lm_fairseq.pt", PUBLISHED / "dict.txt")


class Malicious:
    """Runs code where it is unpickled carelessly: it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


SAVE = {
    "zip": torch.save,
    "legacy": lambda contents, path: torch.save(contents, path, _use_new_zipfile_serialization=False),
    "protocol 4": lambda contents, path: torch.save(contents, path, pickle_protocol=4),
    "pickle": lambda contents, path: path.write_bytes(pickle.dumps(contents["extra_state"])),
}


@pytest.mark.parametrize("container", SAVE)
def test_code_in_a_file_does_not_run(read, load, tmp_path, container):
    read["extra_state"] = {"meters": [Malicious(tmp_path / "made")]}
    SAVE[container](read, tmp_path / "model.pt")
    refused(load, tmp_path / "model.pt", match=r"argparse.Namespace: (nt|posix)\.mkdir\. Load")
    assert not (tmp_path / "made").exists()
    with open(tmp_path / "model.pt", "rb") as file:  # read carelessly, it would have been made
        pickle.load(file) if container == "pickle" else torch.load(file, weights_only=False)
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "contents, message",
    [
        ({"weights": {}}, "must be a dict that holds the weights as 'model'"),
        ({"model": {}}, "does not say how the model is built"),
        ({"model": {"decoder.x": 3}, "args": argparse.Namespace()}, "holds int where there must be weights: decoder.x"),
    ],
)
def test_other_files_of_torch(reload, contents, message):
    refused(reload, contents, match=message)


@pytest.mark.parametrize("name", ["transformer_lm_fairseq.pt", "dict.txt"])
def test_a_damaged_file(load, tmp_path, golden, name):
    (tmp_path / "model.pt").write_bytes((golden.folder / name).read_bytes()[:5000])
    refused(load, tmp_path / "model.pt", match="model.pt is not a file of torch.save, or is damaged")


@pytest.mark.parametrize("name, value", [("max_bytes", 20), ("word_markers", True)])
def test_spellings_that_fairseq_reads_in_another_way(name, value):
    words = ["<s>", "<pad>", "</s>", "<unk>", *map(str, range(16))]
    make_input = partial(CharCNN, words, 8, char_dim=4, filters=(3, 4), **{name: value})
    make_body = partial(transformer, num_blocks=1, dim=8, ffn_dim=12, num_heads=2)
    model = assemble(make_input, make_body, partial(AdaptiveSoftmax, 20, cutoffs=(5,)))
    refused(fairseq.to_state_dict, model, match=f"fairseq has no model with {name}={value}: its weights")


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    refused(published, "bands", error=ModuleNotFoundError, match="pip install torch")


def test_models_that_fairseq_does_not_have():
    first = transformer_lm(20, dim=8, num_blocks=1, num_heads=2, ffn_dim=12, cutoffs=(5,))
    first.body.positions.first_position = 0
    words, plain = partial(WordEmbedding, 20, 8), partial(AdaptiveSoftmax, 20, cutoffs=())
    mixed = [TransformerBlock(12, ToyMixer()), TransformerBlock(12, CausalAttention(2))]
    windows = [TransformerBlock(12, CausalAttention(2, window=3, use_bias=False))]
    small = partial(transformer, num_blocks=1, dim=8, ffn_dim=12, num_heads=2)
    tied = [
        assemble(words, small, partial(AdaptiveSoftmax, 20, cutoffs, use_bias=use_bias), tied=True)
        for cutoffs, use_bias in (((), True), ((5,), False), ((5,), True))
    ]
    projected = partial(AdaptiveSoftmax, 20, (5,), factor=2, tie_projections=(False, False))
    for model, reason in (
        (assemble(words, small, projected), "tied words of another .*, a projection of its own for the head: its"),
        (first, "first_position=0"),
        (assemble(words, partial(TransformerDecoder, mixed, 8), plain), "mixer=ToyMixer: its weights"),
        (assemble(words, partial(TransformerDecoder, windows, 8), plain), "window=3, attention without biases: its"),
        (assemble(words, partial(ToyBody, 8), plain), "body=ToyBody: its weights"),
        (tied[0], "use_bias=True"),
        (tied[1], "tails that are slices of one table"),
        (tied[2], "use_bias=True, "),
    ):
        refused(fairseq.to_state_dict, model, match=f"fairseq has no model with {reason}")


def test_the_words_of_char_cnn_are_those_of_the_dictionary():
    model, vocabulary = published("char_cnn")
    assert model.word_input.words == vocabulary.words and tuple(vocabulary.words[:4]) == SPECIAL_WORDS
    assert keras.ops.convert_to_numpy(model.word_input.symbols.value).shape == (2, 16)
