import array
import codecs
import contextlib
import csv
import hashlib
import os
from pathlib import Path, PurePath

import numpy as np

from keras_adaptive.data.metadata import SPLITS
from keras_adaptive.data.sources.table_cells import TABLES, cells, column_names
from keras_adaptive.data.sources.text_files import is_file, is_folder, join, names, open_text, suffix
from keras_adaptive.files import writing

DIVISIONS = ("lines", "documents")
_LONGEST = 1 << 26  # largest number of bytes in a line, and of characters in a cell


def split_text(
    source: str | os.PathLike,
    folder: str | os.PathLike,
    *,
    column: str | None = None,
    by: str | None = None,
    valid_fraction: float = 0.05,
    test_fraction: float = 0.05,
    seed: int = 1,
    any_bytes: bool = False,
) -> str:
    """Divides a text into `train.txt`, `valid.txt` and `test.txt`, which `keras_adaptive.data.prepare` reads.

    The text is a file, a folder of `.txt` files, or a column of a table or of all tables of a folder. Its documents are
    the parts of a file between blank lines, the files of a folder, or the rows of the tables, each of which becomes a
    line. A document is never divided, and equal documents are in the same split. The text is streamed: memory holds 8
    bytes per document, and the longest line.

    `valid_fraction` and `test_fraction` of the different documents (or of the lines), rounded, and at least one, become
    validation and test text. A hash of `seed` and the document (or the number of the line) selects them, so that the
    splits are the same on every machine. The order of the text is kept. Blank lines between the lines of a text that is
    divided by lines are removed.

    Args:
        source: File of text, folder of `.txt` files (at any depth, in the order of their names), or file or folder of
            tables: `.parquet`; `.jsonl`, `.ndjson` or `.json` with an object per line; or a header and columns that
            are separated by commas, semicolons or tabs. Files may be compressed (`.gz`, `.bz2`, `.xz`, `.zst`). An
            address such as "s3://bucket/texts" or "zip://texts::archive.zip" is read by fsspec.
        folder: Existing folder for the three files.
        column: Name of the column of a table, or of the field of JSON objects.
        by: "documents" or "lines". By default a folder of three files that are named `train`, `valid` and `test`, such
            as `train.jsonl.gz`, keeps these splits. Any other text is divided by documents, except for a file that has
            fewer than three different documents, or one that is longer than half of the text; such a file is divided by
            lines.
        valid_fraction: Fraction of the text for validation, between 0 and 1.
        test_fraction: Fraction of the text for the test, between 0 and 1.
        seed: Integer that selects the documents or lines.
        any_bytes: Whether the text need not be UTF-8.

    Returns:
        "documents" or "lines", the units that were divided, or "files" if the splits of a folder were kept.

    Raises:
        ValueError: If the source holds no text, is damaged or not UTF-8, the column does not exist, the fractions leave
            no training text, or there are fewer than three different documents or lines.
        OSError: If an address cannot be read.
        ModuleNotFoundError: If an address needs fsspec, or Parquet or `.zst` PyArrow, which is not installed.

    Example:

    ```python
    Path("novel.txt").write_text("".join(f"Paragraph {i}.\\n\\n" for i in range(100)))
    Path("texts").mkdir()
    split_text("novel.txt", "texts", valid_fraction=0.1, test_fraction=0.1)  # "documents"
    len(Path("texts/valid.txt").read_text().split())  # 20 words in 10 of the paragraphs
    ```
    """
    fractions = {"valid": valid_fraction, "test": test_fraction}
    if min(fractions.values()) <= 0 or not sum(fractions.values()) < 1:
        raise ValueError(f"The fractions must be above 0, and their sum below 1. Received: fractions={fractions}.")
    if by not in (None, *DIVISIONS):
        raise ValueError(f"`by` must be one of {', '.join(DIVISIONS)}. Received: by={by!r}.")
    text = _Text(source, column, any_bytes)
    if by is None and (given := _given(text.files)):
        with _long_cells(), writing(folder):
            for split, path in given.items():
                text.files = [path]
                with open(Path(folder, f"{split}.txt"), "wb") as file:
                    file.writelines(line for _, line in text.lines("documents"))
        return "files"
    with _long_cells():
        unit, keys = _units(text, by, seed)
        splits = _assign(keys, fractions, f"{source} has {{}} different {unit}")
        with contextlib.ExitStack() as stack, writing(folder):
            files = [stack.enter_context(open(Path(folder, f"{split}.txt"), "wb")) for split in SPLITS]
            number = -1
            for begins, line in text.lines(unit):
                number += begins
                files[splits[number]].write(line)
    return unit


class _Text:
    """Lines of a text, a file, a folder or the column of a table, with marks where its units begin."""

    def __init__(self, source, column, any_bytes):
        self.column, self.any_bytes = column, any_bytes
        self.is_folder = is_folder(source)
        if not self.is_folder and not is_file(source):
            raise ValueError(f"{source} must be a file of text or a folder with train.txt, valid.txt and test.txt.")
        self.files = _files(source, TABLES if column else (".txt",)) if self.is_folder else [source]
        if not column and suffix(self.files[0]) in TABLES:
            names = ", ".join(column_names(self.files[0]))
            raise ValueError(
                f"{self.files[0]} is a table: pass the name of a column of text. Received: columns {names}."
            )

    def lines(self, unit):
        """Yields whether a unit ("documents" or "lines") begins, and the line."""
        for path in self.files:
            begins = True
            for line in self._lines(path):
                if line.strip():
                    yield begins or unit == "lines" or self.column is not None, line
                    begins = False
                elif unit == "documents" and not begins and not self.column:
                    yield False, line
                    begins = not self.is_folder

    def _lines(self, path):
        if self.column:
            return cells(path, self.column, self.any_bytes, _LONGEST)
        return _lines(path, self.any_bytes)


def _given(files):
    """Returns the file of each split if three files have the names of the splits, such as `train.jsonl.gz`."""
    named = {PurePath(str(path).split("::")[0]).name.partition(".")[0]: path for path in files}
    return named if len(files) == len(SPLITS) and named.keys() == set(SPLITS) else None


def _units(text, by, seed):
    """Returns the units to divide, and the key of each unit, an array (units,)."""
    if by != "lines":
        keys, largest = _keys(text, "documents", seed)
        divisible = largest <= 0.5 and len(np.unique(keys)) >= len(SPLITS)
        if by or divisible or text.is_folder or text.column:
            return "documents", keys
    return "lines", _keys(text, "lines", seed)[0]


def _keys(text, unit, seed):
    """Returns the keys of all units and the share of the text that the longest unit has."""
    keys = array.array("Q")
    largest = total = length = 0
    digest = None
    for begins, line in text.lines(unit):
        if begins:
            if digest:
                keys.append(_key(digest))
            digest = hashlib.blake2b(digest_size=8, key=str(seed).encode())
            length = 0
        if unit == "documents":
            digest.update(line.rstrip() + b"\n" if line.strip() else b"")
        else:
            digest.update(str(len(keys)).encode())
        length += len(line)
        total += len(line)
        largest = max(largest, length)
    if digest:
        keys.append(_key(digest))
    return np.frombuffer(keys, np.uint64) if keys else np.zeros(0, np.uint64), largest / max(total, 1)


def _key(digest):
    return int.from_bytes(digest.digest(), "big")


def _assign(keys, fractions, received):
    """Returns the number of the split of every unit, an array (units,). Units with equal keys are in one split."""
    distinct = np.unique(keys)
    sizes = {split: max(1, round(fraction * len(distinct))) for split, fraction in fractions.items()}
    if len(distinct) <= sum(sizes.values()):
        raise ValueError(
            f"{received.format(len(distinct))}, which cannot be divided into train, valid and test with these "
            "fractions: pass a longer text, or a folder with train.txt, valid.txt and test.txt."
        )
    ranks = np.searchsorted(distinct, keys)
    bounds = np.cumsum([sizes["test"], sizes["valid"]])
    return np.array([SPLITS.index(split) for split in ("test", "valid", "train")])[np.digitize(ranks, bounds)]


def _files(folder, suffixes):
    """Returns the files of a folder with one of some suffixes, in the order of their names, without hidden ones.

    A folder that holds tables only gives a table, which needs a column.
    """
    found = names(folder)
    files = [name for name in found if suffix(name) in suffixes]
    if not files and suffixes == TABLES:
        raise ValueError(f"`column` belongs to the file of a table. Received: source={folder} without such files.")
    files = files or [name for name in found if suffix(name) in TABLES]
    if not files:
        raise ValueError(f"{folder}/train.txt is missing, and there is no other .txt file: pass a folder with text.")
    return [join(folder, name) for name in files]


def _lines(path, any_bytes):
    """Yields the lines of a file in bytes, each with a line feed at its end, without a byte order mark."""
    with open_text(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
            if len(line) == _LONGEST:
                raise ValueError(f"{path}:{number}: a line of more than {_LONGEST:,} bytes. Break it into lines.")
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 and not any_bytes else line
            if not any_bytes:
                try:
                    line.decode()
                except UnicodeDecodeError:
                    raise ValueError(f"{path}:{number}: not valid UTF-8. Convert the file to UTF-8.") from None
            yield line if line.endswith(b"\n") else line + b"\n"


@contextlib.contextmanager
def _long_cells():
    """Allows cells of the length of a document, which a global setting of the module `csv` limits to 131,072."""
    least = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(least)
