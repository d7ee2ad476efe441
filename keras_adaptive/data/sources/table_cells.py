"""Texts in a column of a table: a file of separated values, of JSON lines, or of Parquet."""

import contextlib
import csv
import io
import json
import re

from keras_adaptive.data.sources.text_files import open_file, open_text, pyarrow, suffix
from keras_adaptive.files import reading

JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet",)
SEPARATED = (".csv", ".tsv")
TABLES = (*SEPARATED, *JSON_LINES, *PARQUET)
_ROWS = 1024  # rows of Parquet in memory at a time


def column_names(path):
    """Returns the names of the columns of a table, for an error."""
    if suffix(path) in PARQUET:
        with _parquet(path) as table:
            return list(table.schema_arrow.names)
    if suffix(path) in JSON_LINES:
        return next((list(row) for _, row in _objects(path, 1 << 26)), [])
    return next(_rows(path, "\t" if suffix(path) == ".tsv" else ","))


def cells(path, column, any_bytes, longest):
    """Yields the cells of a column in bytes, each as one line. A line of JSON has at most `longest` bytes."""
    readers = dict.fromkeys(JSON_LINES, _json_cells) | dict.fromkeys(PARQUET, _parquet_cells)
    reader = readers.get(suffix(path), _separated_cells)
    for where, cell in reader(path, column, any_bytes, longest):
        try:
            line = re.sub(r"[\r\n]+", " ", cell.strip("\r\n")) + "\n"
            yield line.encode(errors="surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"{where}: not valid Unicode (a lone surrogate). Correct the text.") from None


def _separated_cells(path, column, any_bytes, longest):
    found = [(mark, header) for mark in ",;\t" if column in (header := next(_rows(path, mark, any_bytes)))]
    if not found:
        raise _no_column(path, column, next(_rows(path, ",", any_bytes)))
    mark, header = found[0]
    place = header.index(column)
    for row in _rows(path, mark, any_bytes, len(header)):
        yield path, row[place]


def _json_cells(path, column, any_bytes, longest):
    for where, row in _objects(path, longest):
        if column not in row:
            raise _no_column(where, column, row)
        yield where, _text(where, column, row[column])


def _parquet_cells(path, column, any_bytes, longest):
    with _parquet(path) as table:
        if column not in table.schema_arrow.names:
            raise _no_column(path, column, table.schema_arrow.names)
        for batch in table.iter_batches(_ROWS, columns=[column]):
            for cell in batch.column(0).to_pylist():
                yield path, _text(path, column, cell)


def _no_column(where, column, names):
    return ValueError(f"{where} has no column {column!r}: pass one of {', '.join(names)}.")


def _text(where, column, cell):
    if not isinstance(cell, str | None):
        raise ValueError(f"{where}: the column {column!r} must hold text. Received: {type(cell).__name__}.")
    return cell or ""


def _objects(path, longest):
    """Yields the place of each line of a file of JSON lines, and its object."""
    with open_text(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(longest), b""), 1):
            where = f"{path}:{number}"
            if len(line) == longest:
                raise ValueError(f"{where}: a line of more than {longest:,} bytes. Write one object per line.")
            if line.isspace():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise ValueError(f"{where}: not a JSON object in UTF-8. Write one object per line.")
            yield where, row


@contextlib.contextmanager
def _parquet(path):
    arrow = pyarrow(path)
    with open_file(path) as file, reading(path, "a Parquet file", "Write it again."):
        yield arrow.parquet.ParquetFile(file)


def _rows(path, mark, any_bytes=True, columns=None):
    """Yields the rows of separated values, or, if `columns` is None, their header alone."""
    errors = "surrogateescape" if any_bytes else "strict"
    with open_text(path) as binary, io.TextIOWrapper(binary, "utf-8-sig", errors, newline="") as file:
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
