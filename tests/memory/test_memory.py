"""The datastore of keys and words: the published numbers, exact neighbors, and folders that stop, break or differ."""

import json
import sys
import tempfile
from pathlib import Path

import filelock
import numpy as np
import pytest

from keras_adaptive.data import EOS
from keras_adaptive.layers import LSTMDecoder
from keras_adaptive.memory import Memory, datastore, memory, nearest
from keras_adaptive.memory.index import read_index, write_index
from keras_adaptive.models import Ensemble, LanguageModel, transformer_lm
from tests.support.refusals import refused
from tests.support.tiny import VOCABULARY, language_model
from tests.support.weights import published

IDENTITY = {"model": "m", "vocabulary": "v", "text": "t"}
BLOCK, CONTEXT = 4, 2


@pytest.fixture(scope="module")
def knnlm(golden):
    return golden("knnlm").arrays


@pytest.mark.once
@pytest.mark.parametrize("temperature, suffix", [(1.0, ""), (10.0, "_T10")])
def test_probabilities_are_the_published_ones(knnlm, temperature, suffix, monkeypatch):
    monkeypatch.setattr(nearest, "KEYS", 7)
    shards = [(knnlm["num/keys"][part], knnlm["num/values"][part]) for part in (slice(0, 9), slice(9, None))]
    memory = Memory(shards, neighbors=5, temperature=temperature, share=0.25)
    queries, of_model = knnlm["num/queries"].reshape(-1, 6), knnlm["num/log_p_lm"].reshape(8, -1)
    expected = knnlm[f"num/log_p{suffix}"].reshape(8, -1)
    for word in range(of_model.shape[1]):
        if word != 1:  # its program never scores padding
            found = memory.nll(queries, np.full(8, word), -of_model[:, word])
            np.testing.assert_allclose(-found, expected[:, word], atol=2e-4)


def test_keys_and_probabilities_of_the_published_run(golden, knnlm):
    """The keys are the inputs of the last feed-forward layers, after their LayerNorm."""
    arrays, config = golden("transformer_lm")
    args = config["args"]
    sizes = {"dim": 32, "num_blocks": 3, "ffn_dim": args["decoder_ffn_embed_dim"], "cutoffs": (100, 300)}
    model = transformer_lm(config["vocab"], num_heads=args["decoder_attention_heads"], **sizes)
    for variable, read in published(model.word_input, model.word_output, model.body, prefix="decoder."):
        variable.assign(read(arrays, "param"))
    inputs, targets = (knnlm[f"e2e/{name}"][:320].reshape(5, 64) for name in ("source_last", "targets"))
    nll, keys = model.nll_and_keys(inputs, targets)
    np.testing.assert_allclose(-nll.ravel(), knnlm["e2e/log_p_lm"][:320], atol=2e-5)
    np.testing.assert_allclose(keys.reshape(320, -1), knnlm["e2e/queries"][:320], atol=1e-4)
    for share in (0.25, 0.6):
        memory = Memory([(knnlm["store/keys"], knnlm["store/values"])], neighbors=8, share=share)
        found = memory.nll(keys.reshape(320, -1), targets.ravel(), nll.ravel())
        np.testing.assert_allclose(-found, knnlm[f"e2e/log_p_k8_l{share}"][:320], atol=1e-3)


@pytest.mark.once
@pytest.mark.parametrize("number, place", [(1, 0), (4, 0), (60, 500), (100, 500)])
def test_neighbors_are_the_nearest_of_all_shards(number, place, monkeypatch):
    """Also of keys that are far from 0, as the hidden states of some bodies are."""
    monkeypatch.setattr(nearest, "KEYS", 16)
    monkeypatch.setattr(nearest, "QUERIES", 3)
    random = np.random.default_rng(0)
    keys, queries = (random.normal(place, size=(rows, 5)).astype("float32").astype("float64") for rows in (100, 7))
    shards = [(keys[part].astype("float32"), np.arange(100)[part]) for part in (slice(0, 30), slice(30, 100))]
    distances, ids = nearest.nearest(shards, queries, number)
    exact = ((queries[:, None] - keys) ** 2).sum(-1)
    order = np.argsort(exact, axis=1)[:, :number]
    for row in range(7):
        assert set(ids[row]) == set(order[row])
        np.testing.assert_allclose(distances[row], exact[row, ids[row]], atol=1e-4)
    refused(nearest.nearest, shards, queries[:, :4], 1, match="dimension 5: it belongs to another model.* dimension 4")


@pytest.fixture(scope="module")
def model():
    return language_model()


@pytest.fixture
def text():
    return np.random.default_rng(3).integers(4, VOCABULARY, 50)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(datastore, "SHARD", 16)
    monkeypatch.setattr(memory, "PAIRS", 7)


def build(folder, language_model, tokens, **changes):
    Memory.build(folder, language_model, tokens, BLOCK, CONTEXT, identity={**IDENTITY, **changes}, batch_size=2)
    return Memory.load(folder)


def contents(memory):
    return [np.concatenate(arrays) for arrays in zip(*memory.shards)]


def test_every_token_has_the_key_of_its_window(model, text, tmp_path):
    keys, ids = contents(build(tmp_path / "memory", model, text))
    np.testing.assert_array_equal(ids, text)
    inputs = np.append(EOS, text)
    for place in (0, 3, 4, 21, 49):
        start = max(place // BLOCK * BLOCK - CONTEXT, 0)
        _, expected = model.nll_and_keys(inputs[None, start : place + 1], text[None, start : place + 1])
        np.testing.assert_allclose(keys[place], expected[0, -1], atol=2e-3)  # float16


@pytest.mark.once
def test_a_memory_of_the_text_itself_finds_each_word(model, text, tmp_path):
    memory = build(tmp_path / "memory", model, text)
    keys, ids = contents(memory)
    nll = np.full(len(ids), 3.0)
    memory.neighbors, before = 1, memory.nll(keys, ids, nll)
    assert np.mean(np.exp(-memory.nll(keys, ids, nll)) > memory.share) > 0.9 and len(before) == 50
    for neighbors, tuned in ((1, 1), (40, 10)):
        memory.neighbors = neighbors
        assert memory.tune(keys, ids, nll) == pytest.approx(memory.nll(keys, ids, nll).mean())
        assert memory.neighbors == tuned
    memory.save_settings(tmp_path / "memory")
    again = Memory.load(tmp_path / "memory", IDENTITY)
    assert again.settings == memory.settings and again.share == 0.8


@pytest.mark.once
def test_a_memory_of_a_recurrent_body_has_its_hidden_states(model, text, tmp_path):
    recurrent = LanguageModel(model.word_input, LSTMDecoder(1, 6, 8), model.word_output)
    keys, _ = contents(build(tmp_path / "memory", recurrent, text))
    inputs = np.append(EOS, text)[None, :4]
    np.testing.assert_allclose(keys[:4], np.asarray(recurrent.nll_and_hidden(inputs, text[None, :4])[1][0]), atol=2e-3)


@pytest.mark.once
@pytest.mark.parametrize("calls", [1, 3, 4])
def test_a_memory_that_was_interrupted_goes_on(calls, model, text, tmp_path, monkeypatch):
    whole = build(tmp_path / "whole", model, text)
    write, left = datastore.write_json, [calls]

    def fails(path, value):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        write(path, value)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(datastore, "write_json", fails)
        build(tmp_path / "memory", model, text)
    refused(Memory.load, tmp_path / "memory", match="of 50 tokens: run the command that makes it again")
    shards = json.loads((tmp_path / "memory" / "memory.json").read_text())["shards"]
    assert len(shards) == calls - 1
    for one, other in zip(contents(build(tmp_path / "memory", model, text)), contents(whole), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.once
def test_another_memory_and_other_folders_stay(model, text, tmp_path):
    folder = tmp_path / "memory"
    build(folder, model, text)
    for name in IDENTITY:
        refused(build, folder, model, text, **{name: "x"}, match=f"the memory of another {name}: pass a new folder")
        refused(Memory.load, folder, {name: "x"}, match=f"is the memory of another {name}: make one for this")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("x")
    refused(build, tmp_path / "mine", model, text, match="holds no memory: pass a new folder")
    refused(build, tmp_path / "mine" / "notes", model, text, match="holds no memory: pass a new folder")
    refused(Memory.load, tmp_path / "none", match="memory.json is missing.*keras-adaptive remember")


DAMAGED = [
    (
        "keys_00001.npy",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        "keys_00001.npy or the words beside it are damaged",
    ),
    ("words_00000.npy", lambda data: data[:-1] + bytes([data[-1] ^ 1]), "keys_00000.npy or the words beside it are"),
    ("keys_00001.npy", lambda data: data[:100], "keys_00001.npy is not a shard of a memory"),
    ("words_00001.npy", lambda data: b"", "words_00001.npy is not a shard of a memory"),
    ("memory.json", lambda data: data[:30], "memory.json is not the description of a memory"),
    ("memory.json", lambda data: data.replace(b'"dim": 8', b'"dim": "x"'), "dim must be a whole number"),
    ("memory.json", lambda data: data.replace(b'"rows": 16', b'"rows": -1'), "rows must be a whole number"),
    ("memory.json", lambda data: b"[]", "it must hold objects"),
]


@pytest.mark.once
@pytest.mark.parametrize("name, change, match", DAMAGED, ids=lambda one: str(one)[:20])
def test_a_damaged_memory_is_named(name, change, match, model, text, tmp_path):
    build(tmp_path / "memory", model, text)
    path = tmp_path / "memory" / name
    data = path.read_bytes()
    assert change(data) != data
    path.write_bytes(change(data))
    refused(Memory.load, tmp_path / "memory", match=match)


@pytest.mark.once
@pytest.mark.parametrize(
    "settings, match",
    [
        ({"neighbors": 4}, "`neighbors` must be at most 3, the number of keys. Received: neighbors=4"),
        ({"neighbors": 0}, "`neighbors` must be a whole number"),
        ({"neighbors": 1, "temperature": 0.0}, "`temperature` must be a number"),
        ({"neighbors": 1, "share": 1.5}, "`share` must be a number from 0 to 1. Received: share=1.5"),
    ],
)
def test_settings_out_of_range(settings, match):
    refused(Memory, [(np.eye(3), np.arange(3))], **settings, match=match)


@pytest.mark.once
def test_arrays_that_do_not_fit_together():
    pairs = "`shards` must be pairs of keys of one dimension and of as many ids"
    refused(Memory, [(np.eye(3), np.arange(5))], neighbors=1, match=pairs)
    refused(Memory, [(np.eye(3), np.arange(3)), (np.eye(4), np.arange(4))], neighbors=1, match=pairs)
    of_eye = Memory([(np.eye(3), np.arange(3))], neighbors=1)
    one = "one finite key for each word, and at least one word. Received: keys of shape"
    for keys, ids in ((np.eye(3)[:1], np.arange(3)), (np.full((1, 3), np.nan), [0]), (np.zeros((0, 3)), [])):
        refused(of_eye.nll, keys, ids, np.ones(len(ids)), match=one)
        refused(of_eye.tune, keys, ids, np.ones(len(ids)), match=one)


@pytest.mark.once
def test_settings_of_a_file_are_checked(model, text, tmp_path):
    memory, path = build(tmp_path / "memory", model, text), tmp_path / "memory" / "memory.json"
    memory.save_settings(tmp_path / "memory")
    facts = json.loads(path.read_text())
    for settings in ({"share": 0.5}, {**facts["settings"], "share": 7}, [1]):
        path.write_text(json.dumps({**facts, "settings": settings}))
        refused(Memory.load, tmp_path / "memory", match="memory.json is not the description of a memory")


@pytest.mark.once
def test_one_process_at_a_time_makes_a_memory(model, text, tmp_path):
    (tmp_path / "memory").mkdir()
    with filelock.FileLock(tmp_path / "memory" / "lock"):
        refused(build, tmp_path / "memory", model, text, match="Another process is making")
    assert len(build(tmp_path / "memory", model, text)) == 50


def test_keys_in_segments_and_of_an_ensemble(model, text):
    inputs, targets = text[None, :-1], text[None, 1:]
    nll, keys = model.nll_and_keys(inputs, targets)
    for in_parts, whole in zip(model.nll_and_keys(inputs, targets, segment=16), (nll, keys)):
        np.testing.assert_allclose(in_parts, whole, atol=1e-5)
    np.testing.assert_allclose(model.keys(inputs), keys, atol=1e-5)
    both = Ensemble([model, model])
    of_ensemble = both.nll_and_keys(inputs, targets)
    for found, expected in zip(of_ensemble, both.nll_and_hidden(inputs, targets)):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(both.keys(inputs), of_ensemble[1], atol=1e-5)


@pytest.mark.once
def test_keys_that_float16_does_not_hold(model, text, tmp_path, monkeypatch):
    monkeypatch.setattr(type(model), "keys", lambda self, x: np.full((*x.shape, 8), 1e5))
    refused(build, tmp_path / "memory", model, text, match="finite in float16. Received: numbers up to 1e[+]05")


@pytest.mark.once
def test_an_index_finds_the_same_neighbors_or_close_ones():
    """An inverted file of fewer lists than a query reads is exact, and so is a flat index; product codes are not."""
    random = np.random.default_rng(5)
    keys, ids = random.normal(size=(600, 8)).astype("float16"), random.integers(0, 50, 600)
    shards, queries, targets = [(keys[:250], ids[:250]), (keys[250:], ids[250:])], keys[::20] + 0.1, ids[::20]
    nll, losses = np.full(30, 3.0), {}
    for kind in (None, "Flat", "IVF4,Flat", "IVF4,PQ4x4"):
        index = made_index(shards, kind) if kind else None
        losses[kind] = Memory(shards, neighbors=9, temperature=2.0, share=0.4, index=index).nll(queries, targets, nll)
    for exact in ("Flat", "IVF4,Flat"):
        np.testing.assert_allclose(losses[exact], losses[None], rtol=1e-4)
    error = np.abs(losses["IVF4,PQ4x4"] - losses[None]).mean()
    assert 1e-4 < error < 0.5 * np.abs(nll - losses[None]).mean()
    few = Memory(shards, neighbors=300, temperature=2.0, share=0.4, index=made_index(shards, "IVF64,Flat"))
    probabilities = np.exp(few.log_probs(queries, np.full((30, 50), -np.log(50))))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)  # lists that hold fewer keys
    few.tune(queries, targets, nll)


def made_index(shards, kind):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "index")
        return read_index(path, write_index(path, shards, kind), 8, 600)


@pytest.mark.once
def test_an_index_is_checked(model, text, tmp_path):
    folder = tmp_path / "memory"
    Memory.build(folder, model, text, BLOCK, CONTEXT, identity=IDENTITY)
    datastore.write_its_index(folder, "Flat")
    assert Memory.load(folder).index.ntotal == len(text)
    whole = (folder / "index.faiss").read_bytes()
    (folder / "index.faiss").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused(Memory.load, folder, match="index.faiss is not the index of a memory.*its contents have changed")
    for kind in ("nonsense", "IVF4096,PQ4", "PQ3"):
        match = f"faiss can make no index '{kind}' of .* keys of dimension 8: pass another"
        refused(datastore.write_its_index, folder, kind, match=match)
        assert Memory.load(folder).index is None
    datastore.write_its_index(folder, "Flat")
    datastore.write_its_index(folder, None)
    assert Memory.load(folder).index is None and not (folder / "index.faiss").exists()


@pytest.mark.once
def test_an_index_needs_faiss(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ModuleNotFoundError, match=r'An index needs faiss: pip install "keras_adaptive\[faiss\]"'):
        write_index(tmp_path / "index", [(np.ones((1, 2)), np.ones(1))], "Flat")
