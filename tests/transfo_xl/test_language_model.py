"""Transformer-XL in the form of Hugging Face, against its own numbers."""

import json
import struct

import numpy as np
import pytest

from keras_adaptive.data import SPECIAL_WORDS
from keras_adaptive.transfo_xl import is_checkpoint, load_language_model
from tests.support.backends import runner, weight_gradients
from tests.support.closeness import close
from tests.support.refusals import refused
from tests.support.tiny import largest_difference

torch = pytest.importorskip("torch")


def test_hidden_states_and_probabilities(folder, texts, golden):
    arrays, _ = golden("transfo_xl")
    model, vocabulary = load_language_model(folder)
    assert tuple(vocabulary.words[:4]) == SPECIAL_WORDS and vocabulary.words[4:6] == ["word1", "word2"]
    assert len(vocabulary) == 202 and model.trained_length == 128
    tokens, targets, nll = texts
    hidden = np.concatenate([arrays[f"out/hidden_{segment}_2"] for segment in (1, 2, 3)], axis=1)
    np.testing.assert_allclose(runner(model)(tokens), hidden, atol=1e-5)
    for segment in (None, 6, 5):
        np.testing.assert_allclose(model.nll(tokens, targets, segment), nll, rtol=1e-5, atol=1e-5)
    log_probs = model.log_probs(tokens[:1])[0, :6]
    published = np.sort(arrays["out/log_probs_1"])
    np.testing.assert_allclose(np.sort(log_probs)[:, 2:], published, rtol=1e-5, atol=1e-5)
    assert np.all(log_probs[:, :2] < -9000)  # <s> and <pad>


def test_gradients_of_the_second_segment(folder, texts, golden):
    """Those of the tables and of the tied projections too, which input and output share."""
    arrays, _ = golden("transfo_xl")
    model, _ = load_language_model(folder)
    tokens, targets, _ = texts
    body, words = model.body, model.word_input
    _, state = runner(lambda ids: body.step(words(ids), body.initial_state(2)))(tokens[:, :6])
    block = body.blocks[1].attention
    variables = [*words.tables[1:], *words.projections, block.content_bias, block.relative.kernel]

    def loss():
        return model.word_output.total_nll(body.step(words(tokens[:, 6:12]), state)[0], targets[:, 6:12])

    value, gradients = weight_gradients(loss, variables)
    np.testing.assert_allclose(value, arrays["out/loss_sum_2"], rtol=1e-5)
    names = ["word_emb.emb_layers.1.weight", "word_emb.emb_layers.2.weight"]
    names += [*(f"word_emb.emb_projs.{band}" for band in range(3)), "layers.1.dec_attn.r_w_bias"]
    names += ["layers.1.dec_attn.r_net.weight"]
    expected = [arrays[f"grad/transformer.{name}"] for name in names]
    expected = [array.T if "proj" in name or "r_net" in name else array for name, array in zip(names, expected)]
    close(gradients, expected, 1e-5, least=0.0)


@pytest.mark.once
def test_the_folder_and_its_files(folder, tmp_path):
    assert is_checkpoint(folder) and is_checkpoint(folder / "pytorch_model.bin")
    assert not is_checkpoint(folder / "config.json") and not is_checkpoint(folder / "model.safetensors.index.json")
    model, _ = load_language_model(folder)
    words = folder / "vocab.txt"
    words.rename(tmp_path / "words.txt")
    refused(load_language_model, folder, match="must have a file of the vocabulary, vocab.pkl or .* pass dictionary")
    again, _ = load_language_model(folder / "pytorch_model.bin", tmp_path / "words.txt")
    assert largest_difference(model, again) == 0
    (folder / "pytorch_model.bin").unlink()
    refused(load_language_model, folder, match="must have a file of the weights, model.safetensors or pytorch_model")


def write_safetensors(path, arrays, dtype="F32"):
    header, contents = {"__metadata__": {"format": "pt"}}, b""
    for name, array in arrays.items():
        part = array.tobytes()
        header[name] = {
            "dtype": dtype, "shape": array.shape, "data_offsets": [len(contents), len(contents) + len(part)],
        }  # fmt: skip
        contents += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + contents)


@pytest.mark.once
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_safetensors(folder, dtype):
    model, _ = load_language_model(folder)
    state = torch.load(folder / "pytorch_model.bin", weights_only=True)
    tied = ("crit.out_layers.0.weight", "crit.out_layers.1.weight", "crit.out_layers.2.weight", "crit.out_projs.1")
    arrays = {name: tensor.numpy() for name, tensor in state.items() if name not in tied}
    if dtype == "F16":
        arrays = {name: array.astype("float16") for name, array in arrays.items()}
    elif dtype == "BF16":
        arrays = {name: (array.view("uint32") >> 16).astype("uint16") for name, array in arrays.items()}
    write_safetensors(folder / "model.safetensors", arrays, dtype)
    (folder / "pytorch_model.bin").unlink()
    assert largest_difference(load_language_model(folder)[0], model) <= {"F32": 0, "F16": 1e-3, "BF16": 1e-2}[dtype]
