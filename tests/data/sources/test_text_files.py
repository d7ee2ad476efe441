"""The same text by every path, compression and kind of table, and what cannot be read."""

import bz2
import gzip
import itertools
import json
import lzma
import re
import zipfile

import fsspec
import pyarrow
import pyarrow.parquet
import pytest

from keras_adaptive.data import SPLITS, prepare, split_text
from keras_adaptive.data.sources.text_files import names
from tests.support.refusals import refused
from tests.support.text import write_splits

pytestmark = pytest.mark.once

ROWS = [f"Row {i}, naïve.\nsecond line" if i % 3 else f"row {i}" for i in range(60)]
COMPRESSED = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pyarrow.compress(data, "zstd", asbytes=True),
}


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def written(path, rows):
    """Writes rows as the kind of table that the name of the file says."""
    kind, _, compression = path.name.partition(".")[2].partition(".")
    if kind == "parquet":
        table = pyarrow.table({"id": range(len(rows)), "text": rows})
        pyarrow.parquet.write_table(table, path, row_group_size=7)
        return path
    if kind == "csv":
        data = "id,text\n" + "".join(f'{i},"{row}"\n' for i, row in enumerate(rows))
    elif kind == "txt":
        data = "".join(row.replace("\n", " ") + "\n" for row in rows)
    else:
        data = "".join(json.dumps({"id": i, "text": row}) + "\n" for i, row in enumerate(rows))
    compress = COMPRESSED.get(compression, bytes)
    half = len(data) // 2  # two frames of compression, as `cat` joins files
    path.write_bytes(b"".join(compress(part.encode()) for part in (data[:half], data[half:])))
    return path


def divided(source, folder, column=None, by=None):
    folder.mkdir(exist_ok=True)
    split_text(source, folder, column=column, by=by, valid_fraction=0.1, test_fraction=0.2)
    return {split: (folder / f"{split}.txt").read_bytes() for split in SPLITS}


@pytest.mark.parametrize("compression", COMPRESSED)
def test_compressed_text_is_divided_as_text(tmp_path, compression):
    plain = divided(written(tmp_path / "a.txt", ROWS), tmp_path / "plain")
    assert divided(written(tmp_path / f"a.txt.{compression}", ROWS), tmp_path / "other") == plain
    (tmp_path / "texts").mkdir()
    for i in range(5):
        written(tmp_path / "texts" / f"{i}.txt.{compression}", ROWS[12 * i : 12 * i + 12])
    assert divided(tmp_path / "texts", tmp_path / "files", by="lines") == plain


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "ndjson.gz", "json.zst", "csv.xz"])
def test_tables_of_every_kind_are_divided_alike(tmp_path, kind):
    table = divided(written(tmp_path / "a.csv", ROWS), tmp_path / "csv", "text")
    assert sum(len(text.splitlines()) for text in table.values()) == 60 and table["test"].count(b"\n") == 12
    assert divided(written(tmp_path / f"a.{kind}", ROWS), tmp_path / "whole", "text") == table
    (tmp_path / "tables").mkdir()
    for i in range(3):
        written(tmp_path / "tables" / f"{i}.{kind}", ROWS[20 * i : 20 * i + 20])
    assert divided(tmp_path / "tables", tmp_path / "several", "text") == table


@pytest.mark.parametrize("kind", ["jsonl.gz", "parquet", "txt.zst"])
def test_splits_of_files_are_kept(tmp_path, kind):
    (tmp_path / "texts").mkdir()
    rows = {"train": ROWS[:40], "valid": ROWS[40:50], "test": ROWS[50:]}
    for split, texts in rows.items():
        written(tmp_path / "texts" / f"{split}.{kind}", texts)
    column = None if kind == "txt.zst" else "text"
    lines = {split: [row.replace("\n", " ") for row in texts] for split, texts in rows.items()}
    kept = divided(tmp_path / "texts", tmp_path / "kept", column)
    assert {split: text.decode().splitlines() for split, text in kept.items()} == lines
    assert divided(tmp_path / "texts", tmp_path / "divided", column, by="lines") != kept


def test_addresses(tmp_path, memory):
    folder = write_splits(tmp_path / "texts", "the cat sat\n" * 9, train="the cat sat on the mat\n" * 20)
    straight = prepare(folder, tmp_path / "straight", source="text").data_dir
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        for split in SPLITS:
            memory.pipe(f"/texts/{split}.txt", (folder / f"{split}.txt").read_bytes())
            archive.write(folder / f"{split}.txt", f"inner/{split}.txt")
    zipped = f"zip://inner::{tmp_path}/texts.zip"
    for number, address in enumerate(["memory://texts", f"file://{folder}", f"{folder}/", zipped]):
        assert names(address) == sorted(f"{split}.txt" for split in SPLITS)
        data = prepare(address, tmp_path / str(number), source="text").data_dir
        assert all(path.read_bytes() == (straight / path.name).read_bytes() for path in data.iterdir())
    several = divided(f"zip://::{tmp_path}/texts.zip", tmp_path / "a", by="lines")
    assert several == divided(folder, tmp_path / "b", by="lines")
    gz = gzip.compress((folder / "train.txt").read_bytes())
    memory.pipe("/one.txt.gz", gz)
    assert divided("memory://one.txt.gz", tmp_path / "a") == divided(folder / "train.txt", tmp_path / "b")


@pytest.mark.processes
def test_processes_read_addresses(tmp_path, memory, monkeypatch):
    monkeypatch.setattr("keras_adaptive.data.preparation.prepare._PART", 100)
    folder = write_splits(tmp_path / "texts", "the cat sat\n" * 9, train="the cat sat on the mat\n" * 20)
    straight = prepare(folder, tmp_path / "straight", source="text").data_dir
    data = prepare(f"file://{folder}", tmp_path / "data", source="text", processes=2).data_dir
    assert all(path.read_bytes() == (straight / path.name).read_bytes() for path in data.iterdir())
    for split in SPLITS:
        memory.pipe(f"/texts/{split}.txt", (folder / f"{split}.txt").read_bytes())
    unseen = "memory://texts/train.txt cannot be read"  # by another process
    refused(prepare, "memory://texts", tmp_path / "other", processes=2, error=OSError, match=unseen)


JSON = '{"text": "one"}\n'


@pytest.mark.parametrize(
    "name, contents, column, message",
    [
        ("a.txt.gz", gzip.compress(b"line\n" * 99)[:-9], None, "a.txt.gz is not a .gz file, or is damaged"),
        ("a.txt.gz", b"line\n", None, "a.txt.gz is not a .gz file, or is damaged"),
        ("a.txt.zst", b"line\n" * 9, None, "a.txt.zst is not a .zst file, or is damaged"),
        ("a.txt.zst", COMPRESSED["zst"](b"line\n" * 99)[:-3], None, "a.txt.zst is not a .zst file, or is damaged"),
        ("a.parquet", b"PAR1 and more", "text", "a.parquet is not a Parquet file, or is damaged"),
        ("a.parquet", "body", "text", "a.parquet has no column 'text': pass one of body."),
        ("a.parquet", "body", None, "a.parquet is a table: pass the name of a column of text. Received: columns body."),
        ("a.jsonl", JSON + "[1]\n", "text", "a.jsonl:2: not a JSON object in UTF-8. Write one object per line."),
        ("a.jsonl", JSON + "{\n", "text", "a.jsonl:2: not a JSON object"),
        ("a.jsonl", JSON + '{"body": ""}', "text", "a.jsonl:2 has no column 'text': pass one of body."),
        ("a.jsonl", JSON + '{"text": 1}', "text", "a.jsonl:2: the column 'text' must hold text. Received: int."),
        ("a.jsonl", JSON + '{"text": "\\ud83d"}', "text", "a.jsonl:2: not valid Unicode (a lone surrogate)"),
        ("a.json.gz", gzip.compress(JSON.encode()), None, "Received: columns text."),
    ],
    ids=itertools.count(),  # the contents have the time of their compression
)
def test_damaged_files_are_refused_in_one_line(tmp_path, name, contents, column, message):
    if contents == "body":
        pyarrow.parquet.write_table(pyarrow.table({"body": ROWS}), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    refused(split_text, tmp_path / name, tmp_path, column=column, match=re.escape(message))


def test_addresses_that_cannot_be_read(tmp_path, memory, monkeypatch):
    refused(split_text, "nowhere://a.txt", tmp_path, error=OSError, match="nowhere://a.txt cannot be read .* nowhere")
    refused(split_text, "memory://a.txt", tmp_path, match="memory://a.txt must be a file of text or a folder")
    refused(prepare, "memory://texts", tmp_path / "data", match="memory://texts/train.txt is missing")
    memory.pipe("/a.txt", b"line\n" * 99)

    def denied(*_, **__):
        raise PermissionError("Access denied\nby the server")

    monkeypatch.setattr(type(memory), "_open", denied)
    message = r"memory://a.txt cannot be read \(PermissionError: Access denied by the server\). Check the address"
    refused(split_text, "memory://a.txt", tmp_path, error=OSError, match=message)
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    refused(split_text, "memory://a.txt", tmp_path, error=ModuleNotFoundError, match="keras_adaptive.remote")
