"""What is refused of a `.keras` file from outside: a table of attacks, a line each."""

import json
import os
import random
import zipfile

import keras
import numpy as np
import pytest
from keras.saving import serialize_keras_object

from keras_adaptive.data import SPECIAL_WORDS
from keras_adaptive.layers import TransformerBlock
from keras_adaptive.models import read_language_model
from tests.support.archives import zipped
from tests.support.configs import dicts, put
from tests.support.refusals import refused
from tests.support.tiny import compiled, language_model, largest_difference

pytestmark = pytest.mark.once

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
HUGE = 10**30


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = compiled(language_model())
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    model.save(path)
    return model, path


def members(path, **changed):
    """Returns the members of a file, some of them replaced or, by None, left out."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()} | changed
    return {name: content for name, content in files.items() if content is not None}


def packed(path, changed):
    return zipped(members(path, **changed), zipfile.ZIP_STORED)


def flipped(path, at):
    content = bytearray(path.read_bytes())
    content[content.index(at) + len(at)] ^= 0xFF
    return bytes(content)


def with_config(path, change):
    """Returns a file after `change(config)`."""
    config = json.loads(members(path)[CONFIG])
    change(config)
    return packed(path, {CONFIG: json.dumps(config)})


DAMAGED = {
    "empty": lambda path: b"",
    "a text": lambda path: b"<html>Sorry, moved.</html>",
    "half": lambda path: path.read_bytes()[: path.stat().st_size // 2],
    "without its end": lambda path: path.read_bytes()[:-30],
    "a flipped byte of the config": lambda path: flipped(path, b'"vocabulary_size'),
    "a flipped byte of the weights": lambda path: flipped(path, b"HDF"),
    "no config": lambda path: packed(path, {CONFIG: None}),
    "no weights": lambda path: packed(path, {WEIGHTS: None}),
    "no members": lambda path: zipped({}),
    "weights that are none": lambda path: packed(path, {WEIGHTS: b"none"}),
    **{
        f"a config that is {text[:9]}": lambda path, text=text: packed(path, {CONFIG: text})
        for text in ("", "{", "[]", "3", "null", "[" * 100_000, "{}", '{"registered_name": "Lambda"}')
    },
}
CONFIGS = [
    (name, value)
    for name, values in {
        "registered_name": ["keras_adaptive>TransformerDecoder", "Sequential", None, HUGE],
        "vocabulary_size": [HUGE, 10**12, 40, -1, None, "many", 1e300, []],
        "dim": [HUGE, 40_000, 10, 0, -8, None, "8"],
        "ffn_dim": [10**9, 13, -1, None],
        "num_heads": [3, 0, -2, HUGE],
        "cutoffs": [[HUGE], [5, 5], [-5], 5, "abc", None, [[5]], [4]],
        "factor": [0, HUGE, None, 3],
        "blocks": [None, [[[]]], "block"],
        "word_input": [None, 3, {}, {"class_name": "Lambda", "config": {}}],
        "config": [None, [], {}],
        "dtype": ["no_policy", HUGE, {"class_name": "DTypePolicy", "config": {"name": "no_policy"}}],
    }.items()
    for value in values
]


def assert_refused(path, content):
    path.write_bytes(content)
    message = refused(read_language_model, path, match=r"\). Put the file back, or take another model.$")
    assert message.startswith(f"{path} is not a saved LanguageModel, or is damaged (")


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_named(saved, tmp_path, kind):
    assert_refused(tmp_path / "best.keras", DAMAGED[kind](saved[1]))


@pytest.mark.parametrize("name, value", CONFIGS, ids=lambda one: repr(one)[:40])
def test_a_config_that_is_not_that_of_the_weights_is_named(saved, tmp_path, name, value):
    assert_refused(tmp_path / "best.keras", with_config(saved[1], lambda config: put(config, **{name: value})))


def body(name, **config):
    """A change of the config to another body."""
    part = {"class_name": name, "registered_name": f"keras_adaptive>{name}", "config": config}
    return lambda whole: whole["config"].update(body={**whole["config"]["body"], **part})


CHAR_CNN = {
    "class_name": "CharCNN",
    "registered_name": "keras_adaptive>CharCNN",
    "config": {"words": [*SPECIAL_WORDS, "a"], "output_dim": 8, "filters": [1], "highways": 2000},
}
DEEP = {  # changes of the config to so many layers that counting their weights would take minutes
    "num_layers": body("LSTMDecoder", num_layers=2000, units=1, output_dim=8),
    "blocks": body(
        "TransformerDecoder", blocks=[serialize_keras_object(TransformerBlock(1))] * 2000, dim=8, positions=None
    ),
    "highways": lambda whole: whole["config"].update(word_input=CHAR_CNN),
}


@pytest.mark.parametrize("name", DEEP)
def test_layers_without_end_are_not_made(saved, tmp_path, name):
    config = json.loads(members(saved[1])[CONFIG])
    DEEP[name](config)
    path = tmp_path / "best.keras"
    path.write_bytes(packed(saved[1], {CONFIG: json.dumps(config), "x": bytes(10**5)}))
    with pytest.raises(ValueError, match="best.keras is not a saved LanguageModel") as raised:
        read_language_model(path)
    assert f"`{name}` must be at most 1" in str(raised.value.__cause__)


def test_a_model_of_another_class_is_named(tmp_path):
    keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)]).save(tmp_path / "best.keras")
    refused(read_language_model, tmp_path / "best.keras", match="damaged .it holds a Sequential.")


def test_a_bomb_is_not_unpacked(saved, tmp_path):
    (tmp_path / "best.keras").write_bytes(zipped(members(saved[1], x=b"\0" * 10**7)))
    refused(read_language_model, tmp_path / "best.keras", match="bytes and would unpack to 10,")


def test_what_is_no_file_is_named(tmp_path):
    for target in (tmp_path, "/dev/zero"):
        link = tmp_path / f"{target}.keras".replace("/", "_")
        os.symlink(target, link)
        refused(read_language_model, link, match="damaged .it is a folder or a device")
    with pytest.raises(OSError, match="No such file or directory: .*none.keras"):
        read_language_model(tmp_path / "none.keras")


def test_any_change_of_a_config_is_read_or_refused(saved, tmp_path):
    """Forty changes at random, which nobody thought of."""
    rng, path = random.Random(1), tmp_path / "best.keras"
    for _ in range(40):

        def change(config):
            holder = rng.choice(list(dicts(config)))
            if holder:
                values = [None, -1, 0, 7, 1e30, HUGE, True, "a", [], {}, [[]], {"a": None}]
                holder[rng.choice(list(holder))] = rng.choice(values)

        path.write_bytes(with_config(saved[1], change))
        try:
            read_language_model(path)
        except ValueError as error:
            message = str(error)
            assert message.startswith(f"{path} is not a saved LanguageModel") and len(message) < 500


def test_a_lack_of_memory_is_no_damage(saved, monkeypatch):
    def load(*args, **kwargs):
        raise MemoryError("Unable to allocate 745. GiB")

    monkeypatch.setattr(keras.Model, "load_weights", load)
    refused(read_language_model, saved[1], error=MemoryError, match="^Unable to allocate 745. GiB")


@pytest.mark.parametrize(
    "settings",
    [{"global_clipnorm": 1e9}, {"learning_rate": keras.optimizers.schedules.CosineDecay(1.0, 1_000_000)}],
    ids=["clipnorm", "schedule"],
)
def test_the_numbers_of_an_optimizer_may_be_large(tmp_path, settings):
    model = compiled(language_model(), keras.optimizers.SGD(**{"learning_rate": 1.0, **settings}))
    model.save(tmp_path / "best.keras")
    assert largest_difference(read_language_model(tmp_path / "best.keras"), model) == 0


def test_a_whole_file_is_read_without_its_optimizer(saved):
    model = read_language_model(saved[1])
    assert largest_difference(model, saved[0]) == 0 and not model.compiled
    assert np.isfinite(model.log_probs(np.array([[4, 5]]))).all()
