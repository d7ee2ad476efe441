import array
import codecs
import contextlib
import csv
import hashlib
import os
import re
from pathlib import Path

import numpy as np

from keras_adaptive.data.metadata import SPLITS
from keras_adaptive.files import writing

DIVISIONS = ("lines", "documents")
_LONGEST = 1 << 26  # largest number of bytes in a line, and of characters in a cell
_TABLES = (".csv", ".tsv")


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

    The text is a file, a folder of `.txt` files, or a column of a table. Its documents are the parts of a file between
    blank lines, the files of a folder, or the rows of a table, each of which becomes a line. A document is never
    divided, and equal documents are in the same split.

    `valid_fraction` and `test_fraction` of the different documents (or of the lines), rounded, and at least one, become
    validation and test text. A hash of `seed` and the document (or the number of the line) selects them, so that the
    splits are the same on every machine. The order of the text is kept. Blank lines between the lines of a text that is
    divided by lines are removed.

    Args:
        source: File of text, folder of `.txt` files (at any depth, in the order of their names), or file of a table
            with a header, whose columns are separated by commas, semicolons or tabs.
        folder: Existing folder for the three files.
        column: Name of the column of a table.
        by: "documents" or "lines". By default "documents", except for a file that has fewer than three different
            documents, or one that is longer than half of the text; such a file is divided by lines.
        valid_fraction: Fraction of the text for validation, between 0 and 1.
        test_fraction: Fraction of the text for the test, between 0 and 1.
        seed: Integer that selects the documents or lines.
        any_bytes: Whether the text need not be UTF-8.

    Returns:
        "documents" or "lines", the units that were divided.

    Raises:
        ValueError: If the source holds no text, is damaged or not UTF-8, the column does not exist, the fractions leave
            no training text, or there are fewer than three different documents or lines.

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
        self.source, self.column, self.any_bytes = Path(source), column, any_bytes
        self.is_folder = self.source.is_dir()
        if not self.is_folder and not self.source.is_file():
            raise ValueError(f"{source} must be a file of text or a folder with train.txt, valid.txt and test.txt.")
        if column and self.is_folder:
            raise ValueError(f"`column` belongs to the file of a table. Received: column={column!r}, source={source}.")
        if not column and self.source.suffix.lower() in _TABLES and not self.is_folder:
            columns = ", ".join(next(_table(source, "\t" if self.source.suffix.lower() == ".tsv" else ",")))
            raise ValueError(f"{source} is a table: pass the name of a column of text. Received: columns {columns}.")
        self.files = _texts(self.source) if self.is_folder else [self.source]

    def lines(self, unit):
        """Yields whether a unit ("documents" or "lines") begins, and the line."""
        for path in self.files:
            begins = True
            for line in _rows(path, self.column, self.any_bytes) if self.column else _lines(path, self.any_bytes):
                if line.strip():
                    yield begins or unit == "lines" or self.column is not None, line
                    begins = False
                elif unit == "documents" and not begins and not self.column:
                    yield False, line
                    begins = not self.is_folder


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


def _texts(folder):
    """Returns the `.txt` files of a folder, in the order of their names, without hidden ones."""
    files = [path for path in Path(folder).rglob("*") if path.suffix.lower() == ".txt" and path.is_file()]
    names = {path.relative_to(folder).as_posix(): path for path in files}
    texts = [names[name] for name in sorted(names) if not re.search(r"(^|/)\.", name)]
    if not texts:
        raise ValueError(f"{folder}/train.txt is missing, and there is no other .txt file: pass a folder with text.")
    return texts


def _lines(path, any_bytes):
    """Yields the lines of a file in bytes, each with a line feed at its end, without a byte order mark."""
    with open(path, "rb") as file:
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


def _rows(path, column, any_bytes):
    """Yields the cells of a column in bytes, each as one line."""
    found = [(mark, header) for mark in ",;\t" if column in (header := next(_table(path, mark, any_bytes)))]
    if not found:
        columns = ", ".join(next(_table(path, ",", any_bytes)))
        raise ValueError(f"{path} has no column {column!r}: pass one of {columns}.")
    mark, header = found[0]
    for row in _table(path, mark, any_bytes, len(header)):
        yield (re.sub(r"[\r\n]+", " ", row[header.index(column)].strip("\r\n")) + "\n").encode(errors="surrogateescape")


def _table(path, mark, any_bytes=True, columns=None):
    """Yields the rows of a table, or, if `columns` is None, its header alone."""
    errors = "surrogateescape" if any_bytes else "strict"
    with open(path, encoding="utf-8-sig", errors=errors, newline="") as file:
        reader = csv.reader(file, delimiter=mark, strict=True)
        try:
            header = next(reader, [])
            if columns is None:
                yield header
                return
            for row in reader:
                if row and len(row) != columns:
                    raise ValueError(
                        f"{path}:{reader.line_num}: expected {columns} columns. Received: {len(row)}. Quote cells that "
                        "contain separators or line breaks."
                    )
                if row:
                    yield row
        except csv.Error as error:
            raise ValueError(f"{path}:{reader.line_num}: not a table with quoted cells ({error}).") from None
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not valid UTF-8. Convert the file to UTF-8.") from None


@contextlib.contextmanager
def _long_cells():
    """Allows cells of the length of a document, which a global setting of the module `csv` limits to 131,072."""
    least = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(least)
