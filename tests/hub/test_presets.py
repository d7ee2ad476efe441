"""What is refused of a preset from outside: a table of attacks, a line each."""

import json
import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_adaptive.data import TextCodec, Vocabulary
from tests.support import refusals
from tests.support.tiny import VOCABULARY, language_model, largest_difference

keras_hub = pytest.importorskip("keras_hub")

from keras_adaptive.hub import AdaptiveBackbone, AdaptiveCausalLM, AdaptiveCausalLMPreprocessor, AdaptiveTokenizer  # noqa: E402

pytestmark = pytest.mark.once


WORDS = Vocabulary.from_counts({f"w{number}": 99 - number for number in range(VOCABULARY - 4)}, multiple_of=1)
HUGE = 10**12
READERS = {
    "config.json": AdaptiveBackbone,
    "task.json": AdaptiveCausalLM,
    "preprocessor.json": AdaptiveCausalLMPreprocessor,
    "tokenizer.json": AdaptiveTokenizer,
}
BASES = {
    AdaptiveBackbone: keras_hub.models.Backbone,
    AdaptiveCausalLM: keras_hub.models.CausalLM,
    AdaptiveCausalLMPreprocessor: keras_hub.models.CausalLMPreprocessor,
    AdaptiveTokenizer: keras_hub.models.Tokenizer,
}


@pytest.fixture(scope="module")
def task():
    preprocessor = AdaptiveCausalLMPreprocessor(AdaptiveTokenizer(TextCodec(WORDS)), 6)
    return AdaptiveCausalLM(AdaptiveBackbone(language_model()), preprocessor)


@pytest.fixture(scope="module")
def saved(task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets") / "saved"
    task.save_to_preset(str(folder))
    return folder


@pytest.fixture
def preset(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "preset"))


def refused(cls, folder, *parts):
    message = refusals.refused(cls.from_preset, str(folder), match=r"\.$")
    assert all(part in message for part in parts), message


def dicts(value):
    """Yields all dicts in the contents of a JSON file."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from dicts(part)


def put(path, **values):
    """Sets the first setting of each name in a config."""
    config = json.loads(path.read_text())
    for name, value in values.items():
        next(part for part in dicts(config) if name in part)[name] = value
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("cls", [*BASES, *BASES.values()], ids=lambda cls: cls.__name__)
@pytest.mark.each_backend
def test_a_whole_preset_is_read(task, saved, cls):
    loaded = cls.from_preset(str(saved))
    assert cls in (type(loaded), BASES[type(loaded)])
    if isinstance(loaded, AdaptiveTokenizer):
        assert loaded(["w1 none", ""]) == task.preprocessor.tokenizer(["w1 none", ""]) == [[5, 3], []]
    if isinstance(loaded, AdaptiveCausalLMPreprocessor):
        assert loaded.sequence_length == 6 and loaded.tokenizer("w1").tolist() == [5]
    if isinstance(loaded, AdaptiveCausalLM | AdaptiveBackbone):
        assert largest_difference(loaded.language_model, task.language_model) == 0


TEXTS = {
    "deep lists": "[" * 200_000,
    "deep dicts": '{"a":' * 200_000,
    "nothing": "",
    "half": '{"registered_name": "ker',
    "no text": b"\xff\xfe\x00\x80",
    "a list": "[]",
    "null": "null",
    "a number": "3",
    "no class": "{}",
    "another class": '{"registered_name": "Sequential", "class_name": "Sequential", "config": {}}',
    "no config": '{"registered_name": "keras_adaptive>%s", "class_name": "%s", "config": null}',
    "another config": '{"registered_name": "keras_adaptive>%s", "class_name": "%s", "config": {"x": [{}]}}',
}


@pytest.mark.parametrize("file", READERS)
@pytest.mark.parametrize("kind", TEXTS)
def test_a_damaged_config_is_named(preset, file, kind):
    text, name = TEXTS[kind], READERS[file].__name__
    (preset / file).write_bytes(text if isinstance(text, bytes) else text.replace("%s", name).encode())
    refused(READERS[file], preset, f"{preset / file} is not the config of an {name}", "Put the right file back")


def test_what_is_no_file_is_named(preset):
    for file, reader in READERS.items():
        content = (preset / file).read_bytes()
        (preset / file).unlink()
        (preset / file).mkdir()
        refused(reader, preset, file, "it is a folder or a device")
        (preset / file).rmdir()
        (preset / file).write_bytes(content)
        with open(preset / file, "r+b") as sparse:
            sparse.truncate(10**12)
        refused(reader, preset, file, "1,000,000,000,000 bytes, but at most")
        (preset / file).write_bytes(content)


SETTINGS = [
    ("vocabulary_size", [HUGE, 40, -1, None, "many", 1e300, []]),
    ("embedding_dim", [HUGE, 2**15, 0, -8, None, "8", 1.5]),
    ("ffn_dim", [HUGE, 10**9, -1, None, "x"]),
    ("num_heads", [3, 0, -2, HUGE, 1.5]),
    ("cutoffs", [[HUGE], [5, 5], 5, "abc", None]),
    ("blocks", [None, [[[]]], "block"]),
    ("language_model", [None, 3, [], {}, {"class_name": "Lambda", "config": {}}]),
    ("dtype", ["no_policy", HUGE, []]),
    ("name", [[], {"a": 1}]),
]


@pytest.mark.parametrize("file", ["config.json", "task.json"])
@pytest.mark.parametrize("name, values", SETTINGS, ids=lambda one: one if isinstance(one, str) else "")
@pytest.mark.each_backend
def test_sizes_that_the_weights_do_not_have(preset, file, name, values):
    content = (preset / file).read_bytes()
    for value in values:
        (preset / file).write_bytes(content)
        put(preset / file, **{name: value})
        refused(READERS[file], preset, str(preset))


@pytest.mark.parametrize("value", [-1, 0, 1.5, "x", None, True, [], {}, HUGE, 1e300, float("nan")], ids=str)
def test_lengths_of_rows(preset, value):
    for file in ("preprocessor.json", "task.json"):
        put(preset / file, sequence_length=value)
        refused(
            READERS[file], preset, str(preset / file), "`sequence_length` must be a whole number from 1 to 1,048,576"
        )
    match = "^`sequence_length` must be a whole number .*Received: "
    refusals.refused(keras_hub.models.CausalLM.from_preset, str(preset), match=match)


@pytest.mark.each_backend
def test_sizes_are_refused_by_the_classes_of_keras_hub(preset):
    """These classes do not read the sizes of files, so the memory of the machine is the bound."""
    for file in ("config.json", "task.json"):
        put(preset / file, vocabulary_size=HUGE)
        match = "^The weights alone take .* GiB, but this machine has"
        refusals.refused(BASES[READERS[file]].from_preset, str(preset), match=match)


def test_parts_of_other_classes(preset):
    other = {"class_name": "Tokenizer", "registered_name": "keras_hub>BytePairTokenizer", "config": {}}
    for file, name, value in [
        ("task.json", "preprocessor", {"class_name": "Dense", "module": "keras.layers", "config": {"units": HUGE}}),
        ("task.json", "preprocessor", 3),
        ("task.json", "backbone", None),
        ("task.json", "backbone", {"class_name": "Dense", "module": "keras.layers", "config": {"units": 3}}),
        ("task.json", "tokenizer", other),
        ("preprocessor.json", "tokenizer", other),
        ("preprocessor.json", "tokenizer", None),
        ("tokenizer.json", "config_file", 3),
        ("tokenizer.json", "config_file", "../../other.json"),
    ]:
        content = (preset / file).read_bytes()
        put(preset / file, **{name: value})
        refused(READERS[file], preset, str(preset / file))
        (preset / file).write_bytes(content)


WEIGHTS = {
    "none": b"",
    "text": b"<html>Sorry, moved.</html>" * 9999,
    "half": lambda content: content[: len(content) // 2],
    "flipped": lambda content: b"\0" + content[1:],
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_damaged_weights_are_named(preset, kind):
    path = preset / "model.weights.h5"
    change = WEIGHTS[kind]
    path.write_bytes(change(path.read_bytes()) if callable(change) else change)
    for cls in (AdaptiveBackbone, AdaptiveCausalLM):
        refused(cls, preset, str(preset))
    if kind != "none":
        refused(keras_hub.models.CausalLM, preset, f"{path} is not the weights of this backbone, or is damaged")


@pytest.mark.each_backend
def test_weights_of_another_model(task, preset):
    AdaptiveBackbone(language_model(dim=16)).save_weights(preset / "model.weights.h5")
    refused(AdaptiveCausalLM, preset, "model.weights.h5 is not the weights of this backbone")
    (preset / "model.weights.h5").unlink()  # the error above keeps it open
    other = language_model()
    other.weights[0].assign(np.full(other.weights[0].shape, np.nan))
    AdaptiveBackbone(other).save_weights(preset / "model.weights.h5")
    refused(AdaptiveCausalLM, preset, "model.weights.h5 is not the weights of this backbone", "is not finite")


@pytest.mark.parametrize(
    "file, cls",
    [
        ("config.json", AdaptiveTokenizer),
        ("tokenizer.json", AdaptiveTokenizer),
        ("model.weights.h5", AdaptiveBackbone),
        *((f"assets/tokenizer/{name}", AdaptiveCausalLM) for name in ("vocabulary.txt", "corpus.json", "merges.txt")),
    ],
)
def test_a_missing_file_is_named(preset, file, cls):
    (preset / file).unlink()
    refused(cls, preset, str(preset), file.split("/")[-1])


def test_the_vocabulary_of_another_model(preset):
    other = AdaptiveTokenizer(TextCodec(Vocabulary.from_counts({"a": 3}, multiple_of=1)))
    other.save_to_preset(str(preset))
    refused(AdaptiveCausalLM, preset, str(preset), "20 words", "5")


def test_task_weights(preset):
    (preset / "task.weights.h5").write_bytes(b"")
    refused(AdaptiveCausalLM, preset, "task.weights.h5 belongs to another task")


def test_what_is_no_folder(saved, monkeypatch, tmp_path):
    monkeypatch.chdir(saved)
    for cls in READERS.values():
        for path in ("", "none", "config.json", "/dev/null", "bert_base_en"):
            refused(cls, path, f"A preset is a folder that `save_to_preset` wrote. Received: {path!r}")
        refused(cls, tmp_path, f"{tmp_path} holds no preset (config.json is missing)")
    assert AdaptiveTokenizer.from_preset(saved)("w1").tolist() == [5] and os.getcwd() == str(saved)


def test_lengths_of_a_run(task, tmp_path):
    task.preprocessor.tokenizer.save_assets(tmp_path)
    task.language_model.save(tmp_path / "best.keras")
    read, match = AdaptiveCausalLM.from_run, "`sequence_length` must be a whole number"
    for length in (0, -1, 1.5):
        refusals.refused(read, tmp_path, sequence_length=length, match=match)
    refusals.refused(read, "", match="^The path of the model is empty")


def test_another_dtype_and_arguments_of_keras_hub(saved):
    backbone = AdaptiveBackbone.from_preset(str(saved), load_weights=False, dtype="bfloat16")
    assert {keras.backend.standardize_dtype(one.dtype) for one in backbone.trainable_variables} == {"bfloat16"}
    assert AdaptiveCausalLMPreprocessor.from_preset(str(saved), sequence_length=9).sequence_length == 9
