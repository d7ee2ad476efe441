"""What is refused of a `corpus.json` from outside: a table of attacks, a line each."""

import json
import shutil
import zlib

import numpy as np
import pytest

from keras_adaptive.data import Subwords, Vocabulary, load_corpus, prepare, read_metadata
from keras_adaptive.files import read_json_lines
from tests.support.refusals import refused
from tests.support.text import write_splits

pytestmark = pytest.mark.once

BIG = 10**30
VOCABULARY = {"size": 8, "sha256": "0" * 64}
CONVERTED = {"source": "model.pt", "tokenizer": "whitespace", "unit": "word", "vocabulary": VOCABULARY}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A corpus of words, and one of sub-words."""
    folder = write_splits(tmp_path_factory.mktemp("text"), "the cat\nthe\n")
    return [prepare(folder, folder / name, min_count=1, subwords=n) for name, n in (("words", 0), ("pieces", 2))]


def changed(metadata, place, value):
    """A copy of the contents with another value at `a.b.0`; `...` removes what is there."""
    metadata = json.loads(json.dumps(metadata))
    *path, last = place.split(".")
    holder = metadata
    for key in path:
        holder = holder[int(key) if isinstance(holder, list) else key]
    last = int(last) if isinstance(holder, list) else last
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    return metadata


SHARD = "splits.train.shards.tokens.0"
ATTACKS = [
    (0, place, value)
    for place, values in {
        "dtype": ["object", "float64", "int8", "<u2", "O", None, 3, ["uint16"], {"a": 1}, ...],
        "unit": ["words", "", None, 1, [], ...],
        "tokenizer": ["bert", "", None, 7, ...],
        "rules": [1, 3, 2.0, "2", True, None],
        "vocabulary": [None, [], "a", ...],
        "vocabulary.size": [-1, 1.5, True, "9", BIG, None, ...],
        "vocabulary.sha256": ["", "g" * 64, "a" * 63, None, 5, ...],
        "splits": [None, [], 3, ...],
        "splits.valid": [None, [], "text", ...],
        "splits.train.tokens": [-1, 0, 4, 2.0, BIG, "5", None, ...],
        "splits.train.lines": [-1, BIG, 10**15, 6, None, [], ...],
        "splits.test.unknown": [-1, BIG, 10**15, 6, "many", ...],
        "splits.test.bytes": [0, -1, 2.5, BIG, 10**15, True, "9", None, ...],
        "splits.test.text_bytes": [0, -1, 2.5, BIG, 10**15, True, "9", None, ...],
        "splits.valid.sha256": ["", "g" * 64, None, 5, ...],
        "splits.train.unknown_share": [-0.1, 1.5, float("nan"), float("inf"), BIG, True, "0", None, ...],
        "source": [None, 3, ["a"], {}, ...],
        "min_count": [-1, 1.5, True, "3", BIG, ...],
        "splits.train.shards": [None, [], 3, ...],
        "splits.train.shards.tokens": [None, [], {}, "a", [3], [None], ...],
        "splits.train.shards.chars": [[]],
        "splits.train.shards.words": [[{"file": "a", "bytes": 0, "crc32": "00000000"}]],
        f"{SHARD}.file": ["../secret", "/etc/passwd", "a/b", "..", ".", "", "a\0b", "C:secret", "a\\b", None, 3, ...],
        f"{SHARD}.bytes": [-2, 8, 12, 1.0, BIG, "10", None, ...],
        f"{SHARD}.crc32": ["", "zzzzzzzz", None, 1, ...],
    }.items()
    for value in values
]
ATTACKS += [  # on the corpus of sub-words
    (1, "merges", None),
    (1, "merges", ...),
    (1, "merges.sha256", "no"),
    (1, "words", []),
    (1, "words.dtype", "object"),
    (1, "words.size", -3),
    (1, "splits.test.words", -1),
    (1, "splits.test.words", 10**15),
    (1, "splits.test.unknown_words", 10**15),
    (1, "splits.test.unknown_words", ...),
    (1, "splits.train.shards.words", ...),
    (1, "splits.train.shards.words.0.file", "../words"),
    (1, "splits.train.shards.words.0.bytes", 2),
]


@pytest.mark.parametrize("number, place, value", ATTACKS, ids=lambda one: repr(one)[:40])
def test_a_field_that_is_not_what_we_write_is_named(corpora, tmp_path, number, place, value):
    path = tmp_path / "corpus.json"
    path.write_text(json.dumps(changed(corpora[number].metadata, place, value)))
    for read, where in ((load_corpus, tmp_path), (read_metadata, path)):
        message = refused(read, where, match="prepare the corpus again")
        assert str(path) in message and len(message) < 400
        field = place.removesuffix(".0").removesuffix(".0")
        assert place.split(".")[-1] in message or field in message


OTHER_SIZES = [("vocabulary.size", 9), ("vocabulary.size", 0), ("words.size", 9), ("words.size", 2**40)]


@pytest.mark.parametrize("place, value", OTHER_SIZES)
def test_a_size_that_is_not_that_of_the_file_is_named(corpora, tmp_path, place, value):
    folder = shutil.copytree(corpora[1].data_dir, tmp_path / "pieces")
    (folder / "corpus.json").write_text(json.dumps(changed(corpora[1].metadata, place, value)))
    match = f"`{place}` of {folder}/corpus.json must be .* Received: {value}. Put the"
    refused(lambda: load_corpus(folder).word_vocabulary, match=match)


@pytest.mark.parametrize("tokenizer", ["characters", "bytes", "words"])
@pytest.mark.parametrize("unit", ["character", "byte", "word", "sub-word"])
def test_the_unit_and_the_tokenizer_belong_together(tmp_path, tokenizer, unit):
    rules = {"rules": 2} if tokenizer == "words" else {}
    (tmp_path / "corpus.json").write_text(json.dumps({**CONVERTED, "tokenizer": tokenizer, "unit": unit, **rules}))
    if unit in {"characters": ["character"], "bytes": ["byte"], "words": ["word", "sub-word"]}[tokenizer]:
        assert read_metadata(tmp_path / "corpus.json")["unit"] == unit
    else:
        match = f"`unit` of .* must be .*according to `tokenizer`. Received: '{unit}'"
        refused(read_metadata, tmp_path / "corpus.json", match=match)


TEXTS = ["", "{", "[]", "3", "null", '"a"', "NaN", "[" * 100_000, '{"a": ' + "9" * 5000 + "}", b"\xff\xfe{}"]


@pytest.mark.parametrize("text", TEXTS, ids=lambda one: repr(one)[:40])
def test_what_is_no_object_of_json_is_named(tmp_path, text):
    (tmp_path / "corpus.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    message = refused(load_corpus, tmp_path, match="corpus.json .*prepare the corpus again|is not a file of JSON")
    assert "corpus.json is not a file of JSON, or is damaged" in message or not isinstance(text, bytes)


def test_a_device_is_not_read(tmp_path):
    (tmp_path / "corpus.json").symlink_to("/dev/zero")
    device = "corpus.json is not .* .it is a folder or a device.. Put it back"
    refused(read_metadata, tmp_path / "corpus.json", match=device)


def test_what_prepare_writes_is_read(corpora):
    for corpus in corpora:
        assert read_metadata(corpus.data_dir / "corpus.json") == corpus.metadata


def test_a_converted_run_has_no_text(tmp_path):
    (tmp_path / "corpus.json").write_text(json.dumps(CONVERTED))
    assert read_metadata(tmp_path / "corpus.json") == CONVERTED
    refused(load_corpus, tmp_path, match=f"{tmp_path} holds no corpus. Make one")


@pytest.mark.parametrize("more", [{"vocabulary": 3}, {"vocabulary": {"size": 8}}, {"merges": None}, {"dtype": "int32"}])
def test_a_field_of_a_converted_run_that_is_not_what_we_write_is_named(tmp_path, more):
    (tmp_path / "corpus.json").write_text(json.dumps({**CONVERTED, **more}))
    path = tmp_path / "corpus.json"
    refused(read_metadata, path, match=f"{path} (must be an object|has no `)")


@pytest.mark.parametrize("dtype, outside", [("uint16", 8), ("uint16", 65535), ("int32", -1), ("int32", 2**31 - 1)])
def test_ids_outside_the_vocabulary_are_found(corpora, tmp_path, dtype, outside):
    """The sizes and checksums of the file are right."""
    corpus = corpora[0]
    tokens = np.array(corpus.tokens("train")).astype(dtype)
    tokens[3] = outside
    assert len(corpus.vocabulary) == 8
    facts = {"file": "train.tokens", "bytes": tokens.nbytes, "crc32": f"{zlib.crc32(tokens.tobytes()):08x}"}
    metadata = changed(corpus.metadata, "dtype", dtype)
    for split in ("valid", "test"):
        (shard,) = metadata["splits"][split]["shards"]["tokens"]
        shard["bytes"] = metadata["splits"][split]["tokens"] * tokens.itemsize
    metadata["splits"]["train"]["shards"] = {"tokens": [facts]}
    (tmp_path / "corpus.json").write_text(json.dumps(metadata))
    (tmp_path / "vocabulary.txt").write_bytes((corpus.data_dir / "vocabulary.txt").read_bytes())
    tokens.tofile(tmp_path / "train.tokens")
    match = f"train.tokens must hold ids from 0 to 7. Received: {outside}."
    refused(load_corpus(tmp_path).verify, "train", match=match)


@pytest.mark.parametrize("read", [read_metadata, read_json_lines, Subwords.load, Vocabulary.load])
def test_a_file_of_a_terabyte_is_refused_before_it_is_read(tmp_path, read):
    with open(tmp_path / "corpus.json", "wb") as file:
        file.truncate(1 << 40)  # it takes no space on the disk
    message = refused(read, tmp_path / "corpus.json", match="1,099,511,627,776 bytes, but at most|a line of more than")
    assert message.startswith(str(tmp_path / "corpus.json"))
