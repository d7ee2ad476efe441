"""What is refused of a folder from outside, and what its vocabulary may hold."""

import collections
import json
import os
import pickle
import re
import struct

import numpy as np
import pytest

from keras_adaptive.transfo_xl import load_language_model
from keras_adaptive.transfo_xl.words import read_words
from tests.support.refusals import refused
from tests.transfo_xl.conftest import WORDS

pytestmark = pytest.mark.once

torch = pytest.importorskip("torch")

HUGE = 10**30


@pytest.mark.parametrize(
    "options, message",
    [
        ({"pre_lnorm": True, "attn_type": 1}, "not supported: attn_type=1, pre_lnorm=True. Each may"),
        ({"same_length": False}, "not supported: same_length=False"),
        ({"untie_r": False}, "not supported: untie_r=False"),
        ({"tie_word_embeddings": False}, "not supported: tie_word_embeddings=False"),
        ({"d_embed": 16, "d_head": 4}, "not supported: d_embed=16, d_head=4"),
        ({"rotary": 2, "none": None, "off": False}, "not supported: rotary=2. Each"),
        ({"model_type": "gpt2"}, "config.json is not the config.json of a Transformer-XL.*must be transfo-xl"),
        ({"div_val": 1}, "div_val in .* must be a whole number from 2 .*Received: div_val=1"),
        ({"cutoffs": []}, r"cutoffs in .* a list of one or more whole numbers. Received: cutoffs=\[\]"),
        ({"cutoffs": [100, 40]}, "increasing"),
        ({"tie_projs": [1, 0, 0]}, "must be a list of true and false"),
        ({"tie_projs": [False, True]}, "bool per band, 3 in all"),
        ({"n_layer": 10**9}, "has 41 tensors. Received: n_layer=1000000000"),
        ({"n_layer": 1}, "do not match the model .*not part of the model: layers.1"),
        ({"n_head": 0}, "n_head in .* must be a whole number"),
        ({"n_head": HUGE}, "n_head in .* must be a whole number"),
        ({"d_model": 10**9, "d_embed": 10**9, "d_head": 25 * 10**7}, "of another shape"),
        ({"d_inner": "48"}, "d_inner in .* Received: d_inner='48'"),
        ({"dropout": float("nan")}, "dropout in .* must be a number"),
        ({"vocab_size": 300}, "needs a vocabulary of 300 words: .* Received: 200 words"),
    ],
)
def test_options_are_named(configured, options, message):
    refused(configured, options, match=message)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 10**5, "{}"])
def test_a_config_of_other_contents(folder, text):
    (folder / "config.json").write_text(text)
    refused(load_language_model, folder, match="is not the config.json of a Transformer-XL, or is damaged")


def test_an_option_that_is_missing(folder):
    options = json.loads((folder / "config.json").read_text())
    del options["mem_len"]
    (folder / "config.json").write_text(json.dumps(options))
    refused(load_language_model, folder, match="mem_len in .* Received: mem_len=no such option")


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("made",)


WEIGHTS = {
    "code": (lambda state: {**state, "x": Malicious()}, r"more than tensors, plain containers: (nt|posix).mkdir"),
    "a namespace": (lambda state: {"x": __import__("argparse").Namespace()}, "containers: argparse.Namespace"),
    "a list": (lambda state: [1], "must be a dict of tensors"),
    "a number": (lambda state: {**state, "x": 3}, "it holds int where there must be weights: x"),
    "a huge view": (lambda state: {**state, "x": torch.zeros(1).expand(10**6, 10**6)}, "fewer numbers than"),
    "missing": (lambda state: {**state, "crit.cluster_bias": torch.zeros(3)}, r"cluster_bias \(3,\) instead of \(2,\)"),
    "few words": (
        lambda state: {**state, "transformer.word_emb.emb_layers.0.weight": torch.zeros(20, 32)},
        r"of another shape: word_emb.emb_layers.0.weight \(20, 32\) instead of \(42, 32\)",
    ),
    "untied": (
        lambda state: {**state, "crit.out_projs.1": state["crit.out_projs.1"] + 1},
        "different from the tensors they are tied to: crit.out_projs.1",
    ),
    "NaN": (
        lambda state: {**state, "crit.cluster_bias": torch.full((2,), torch.nan)},
        "must have finite weights. Received: infinity or NaN in .*class_bias",
    ),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_are_named(folder, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, message = WEIGHTS[kind]
    path = folder / "pytorch_model.bin"
    torch.save(change(torch.load(path, weights_only=True)), path)
    refused(load_language_model, folder, match=message)
    assert not (tmp_path / "made").exists()


def of_header(header):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(8)


@pytest.mark.parametrize(
    "contents",
    [
        b"", b"\xff" * 9, of_header(b"{"), of_header([]), of_header({"x": 1}),
        of_header({"x": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}),
        of_header({"x": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}),
        of_header({"x": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}),
        of_header({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}),
        of_header({"x": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 8]}}),
        of_header({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}}),
    ],
)  # fmt: skip
def test_safetensors_of_other_contents(folder, contents):
    (folder / "model.safetensors").write_bytes(contents)
    refused(load_language_model, folder, match="model.safetensors is not a file of weights|do not match")


TOKENIZER = {
    "counter": collections.Counter({word: 200 - number for number, word in enumerate(WORDS)}),
    "special": ["<eos>"],
    "lower_case": False,
    "idx2sym": WORDS,
    "sym2idx": collections.OrderedDict((word, number) for number, word in enumerate(WORDS)),
}
SAVE = {
    "torch.save": torch.save,
    "legacy": lambda contents, path: torch.save(contents, path, _use_new_zipfile_serialization=False),
    "pickle": lambda contents, path: path.write_bytes(pickle.dumps(contents)),
    "pickle of Python 2": lambda contents, path: path.write_bytes(pickle.dumps(contents, 2)),
}


@pytest.mark.parametrize("container", SAVE)
def test_a_tokenizer(folder, container, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected, vocabulary = read_words(folder / "vocab.txt", 40), folder / "vocab.bin"
    SAVE[container](TOKENIZER, vocabulary)
    words = read_words(vocabulary, 40)
    assert words.vocabulary.words == expected.vocabulary.words
    np.testing.assert_array_equal(words.order, expected.order)
    assert words.vocabulary.counts[4:6].tolist() == [199, 198] and words.added == 2
    assert load_language_model(folder)[1].sha256 == words.vocabulary.sha256
    for attribute, name in ((Malicious(), r"(nt|posix)\.mkdir"), (re.compile("a"), r"re\._compile")):
        SAVE[container](TOKENIZER | {"pattern": attribute}, vocabulary)
        refused(read_words, vocabulary, 40, match=f"more than plain containers: {name}. .*a text file, one per line")
    assert not (tmp_path / "made").exists()


def test_words_that_the_model_does_not_have(folder):
    """Without <unk> three words are added, and the word </s> of a text is the end of a line."""
    path = folder / "vocab.txt"
    path.write_text("\n".join(["the", "<eos>", "</s>", "cat"]))
    words = read_words(path, 2)
    assert words.vocabulary.words == ["<s>", "<pad>", "</s>", "<unk>", "the", "</s>", "cat"]
    assert words.order.tolist() == [-1, -1, 1, -1, 0, 2, 3] and words.vocabulary.encode(["</s>"]) == [2]
    np.testing.assert_array_equal(words.rows(np.array([5.0, 6.0]), -9), [-9, -9, 6, -9, 5])


@pytest.mark.parametrize(
    "contents, message",
    [
        ("the\ncat", "Received: <eos> as number -1, <unk> as number -1"),
        ("a\nb\n<eos>", "must be among the first 2 words .* Received: <eos> as number 2"),
        ("<eos>\nb\n<unk>", "Received: <eos> as number 0, <unk> as number 2"),
        ("<eos>\nb 3", "a line must be a word"),
        ("<eos>\n\nb", "a line must be a word"),
        ("<eos>\nb\nb", "its words must be distinct"),
        (b"\x80\x04", "is not a vocabulary of a Transformer-XL, or is damaged"),
        (b"\xff\xff", "is not a vocabulary of a Transformer-XL, or is damaged"),
        (pickle.dumps([1]), "must hold the words as idx2sym"),
        (pickle.dumps({"idx2sym": ["<eos>", 3]}), "each word must be a text of one line"),
        (pickle.dumps({"idx2sym": ["<eos>", "a\nb"]}), "each word must be a text of one line"),
        (pickle.dumps({"idx2sym": ["<eos>"], "lower_case": True}), "lower_case is not supported"),
    ],
)
def test_other_vocabularies(tmp_path, contents, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    refused(read_words, path, 2, match=message)
