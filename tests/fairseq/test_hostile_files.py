"""What is refused of a published checkpoint from outside: tables of attacks, a line each."""

import argparse
import os
import pickle
import zipfile

import numpy as np
import pytest

pytestmark = pytest.mark.once

torch = pytest.importorskip("torch")

HUGE = 10**30


def refused(load, path, match):
    with pytest.raises(ValueError, match=match) as raised:
        load(path)
    message = str(raised.value)
    assert len(message) < 1200 and len(message.splitlines()) == 1
    assert "weights_only" not in message and "add_safe_globals" not in message


class Calls:
    """A pickle that names a function, which `__reduce__` would call."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


NAMED = {  # what a pickle holds: the name in the message
    "torch.hub.load": lambda: Calls(torch.hub.load, "owner/repository", "model"),
    "torch.serialization.load": lambda: Calls(torch.load, "other.pt"),
    "torch.nn.modules.linear.Linear": lambda: torch.nn.Linear(1, 1),
    "torch._utils._rebuild_sparse_tensor": lambda: torch.eye(2).to_sparse(),
    "torch._utils._rebuild_meta_tensor_no_storage": lambda: torch.empty(2, device="meta"),
    "torch._utils._rebuild_qtensor": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "torch.ComplexFloatStorage": lambda: torch.ones(2, dtype=torch.complex64),
    "numpy": lambda: np.ones(2),
    "builtins.eval": lambda: Calls(eval, "1"),
    "posix.system": lambda: Calls(os.system, "true"),
}


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", NAMED)
def test_a_name_that_is_not_allowed_is_in_the_message(read, load, tmp_path, name, zipped):
    read["model"]["decoder.x"] = NAMED[name]()
    torch.save(read, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    name = name.replace("builtins", "(__builtin__|builtins)")
    refused(load, tmp_path / "model.pt", f"model.pt is not read, because .*argparse.Namespace: (.*, )?{name}")


def test_many_long_names_are_cut(load, tmp_path):
    names = [f"{number}{'x' * 10**5}" for number in range(9)]
    (tmp_path / "model.pt").write_bytes(b"\x80\x02" + b"".join(f"c{name}\ny\n0".encode() for name in names) + b"N.")
    refused(load, tmp_path / "model.pt", "0x+, 1x+, .* and 4 more")


def test_two_pickles_in_one_file_are_refused(read, load, tmp_path):
    torch.save(read, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt", "a") as archive:
        archive.writestr("other/data.pkl", pickle.dumps({}))
    refused(load, tmp_path / "model.pt", "it has 2 files data.pkl")


def test_a_bomb_and_a_device_are_refused(load, tmp_path):
    with zipfile.ZipFile(tmp_path / "model.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10**7)
    refused(load, tmp_path / "model.pt", "bytes and would unpack to 10,000,000")
    refused(load, "/dev/zero", "/dev/zero is not a file of torch.save, .*a folder or a device")


@pytest.mark.parametrize("where", [100, 2_000, 100_000, -2_000, -30])
@pytest.mark.parametrize("cut", [True, False])
def test_damage_is_named_or_harmless(load, golden, tmp_path, where, cut):
    """Torch compares no checksums: a flipped byte of a weight is another weight."""
    content = bytearray((golden.folder / "transformer_lm_fairseq.pt").read_bytes())
    content[where] ^= 0xFF
    (tmp_path / "model.pt").write_bytes(content[:where] if cut else content)
    try:
        load(tmp_path / "model.pt")
    except ValueError:
        refused(load, tmp_path / "model.pt", "model.pt is not a f|tensors do not match|option")


WEIGHTS = {  # in place of weights of the model, or beside them
    "a version of text": {"decoder.version": "text"},
    "an empty version": {"decoder.version": torch.zeros(0)},
    "a name of bytes": {b"x": torch.zeros(1)},
    "a name of numbers": {3: torch.zeros(1)},
    "a weight of text": {"decoder.x": "text"},
    "a single number": {"decoder.embed_tokens.weight": torch.tensor(1.0)},
    "a fused single number": {"decoder.layers.0.self_attn.in_proj_weight": torch.tensor(1.0)},
    "a foreign weight that ends like a buffer": {"decoder.layers.0.inversion": torch.ones(3)},
    "a huge view": {"x": torch.zeros(1).expand(10**6, 10**6)},
    "many views": dict.fromkeys((f"y{number}" for number in range(30)), torch.zeros(10**6)),
}
CONTENTS = {
    "a list": lambda read: [],
    "no model": lambda read: {"cfg": read["cfg"]},
    "a model of text": lambda read: {**read, "model": "text"},
    "no options": lambda read: {"model": read["model"]},
    "options of text": lambda read: {**read, "cfg": "text"},
    "model options of text": lambda read: {**read, "cfg": {"model": "text"}},
    "a task of text": lambda read: {**read, "cfg": {**read["cfg"], "task": "text"}},
    "arguments of text": lambda read: {"model": read["model"], "args": "text"},
    "arguments without any": lambda read: {"model": read["model"], "args": argparse.Namespace()},
    "every weight a single number": lambda read: {**read, "model": {name: torch.tensor(1) for name in read["model"]}},
    "an option of tensors": lambda read: {**read, "cfg": {"model": {"dropout": torch.zeros(3)}}},
    **{kind: lambda read, kind=kind: {**read, "model": {**read["model"], **WEIGHTS[kind]}} for kind in WEIGHTS},
}
NOT_FINITE = {"NaN": float("nan"), "infinity": float("-inf")}


@pytest.mark.parametrize("kind", NOT_FINITE)
def test_a_weight_that_is_not_finite_is_named(read, load, tmp_path, kind):
    read["model"]["decoder.layers.1.fc1.weight"][3, 1] = NOT_FINITE[kind]
    torch.save(read, tmp_path / "model.pt")
    refused(load, tmp_path / "model.pt", "finite weights: train again. Received: infinity or NaN in .*block_1/")


@pytest.mark.parametrize("kind", CONTENTS)
def test_other_contents_are_named(read, load, tmp_path, kind):
    torch.save(CONTENTS[kind](read), tmp_path / "model.pt")
    refused(load, tmp_path / "model.pt", "model.pt is not a fairseq checkpoint|tensors do not match|not supported")


OPTIONS = [
    (name, value)
    for name, values in {
        "decoder_embed_dim": ["32", 0, -1, 32.5, HUGE, 10**8, True, [32]],
        "decoder_ffn_embed_dim": [HUGE, 10**9, "a"],
        "decoder_layers": [10**9, 0, "3", 9],
        "decoder_attention_heads": [5, 0, HUGE, "x"],
        "decoder_input_dim": ["a", HUGE],
        "dropout": ["0.1", 2, -1, float("nan"), float("inf"), [0.1]],
        "activation_fn": [3, ["relu"], "x" * 10**6],
        "decoder_normalize_before": ["yes", []],
        "tokens_per_sample": ["many", -1, HUGE],
        "adaptive_input_factor": [0, -1, float("nan"), "4", HUGE],
        "adaptive_softmax_cutoff": ["abc", "1,a", "[[1]]", [1.5], [-4], "(" * 10**4, "9" * 10**4, {"a": 1}, [HUGE]],
        "character_embeddings": ["yes", [1]],
        "_name": [3, ["transformer_lm"], "x" * 10**6],
        "alibi": [HUGE, ["x"] * 10**5],
    }.items()
    for value in values
]
FILTERS = ["abc", "[]", "3", "[3]", "[(1, 2, 3)]", [(10**9, 4)], [("a", 4)], [(1, -4)], [(1, HUGE)], {"a": 1}, 7]


@pytest.mark.parametrize("name, value", OPTIONS, ids=lambda one: repr(one)[:40])
def test_an_option_of_a_wrong_value_is_named(read, load, tmp_path, name, value):
    read["cfg"]["model"][name] = value
    torch.save(read, tmp_path / "model.pt")
    refused(load, tmp_path / "model.pt", "option|The model was made|tensors|must|needs")


@pytest.mark.parametrize("value", FILTERS, ids=lambda one: repr(one)[:40])
def test_filters_of_a_wrong_value_are_named(read, load, tmp_path, value):
    read["cfg"]["model"] |= {"character_embeddings": True, "character_filters": value}
    torch.save(read, tmp_path / "model.pt")
    refused(load, tmp_path / "model.pt", "character_filters|options contain")
