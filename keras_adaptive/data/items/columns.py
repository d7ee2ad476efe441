"""Columns of a table of clicks: read from a file or from an object of another package, checked, and numbered."""

import itertools
import os
import warnings
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_adaptive.files import reading

_DENSE = 10  # largest number of integers, per row, between the least and the greatest of a column
_SHOWN = 20  # number of names of columns in an error


def read_columns(table: Any, names: Sequence[str]) -> list[Any]:
    """Returns the columns `names` of a table, all of one length.

    Args:
        table: Path of a CSV or Parquet file, or an object with a column `table[name]` for every name.
        names: List of names.

    Raises:
        ModuleNotFoundError: If PyArrow is needed for a file and not installed.
        ValueError: If a column is missing or empty, is not one-dimensional, or differs in length from the others.
    """
    table = _read_file(table, names) if isinstance(table, (str, os.PathLike)) else table
    columns = [_column(table, name) for name in names]
    sizes = dict(zip(names, map(len, columns)))
    if len(set(sizes.values())) > 1 or not all(sizes.values()):
        raise ValueError(f"The columns of `table` must have the same number of rows, at least 1. Received: {sizes}.")
    return columns


def _read_file(path, names):
    try:
        import pyarrow.csv
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'Tables in files are read by PyArrow: install it by `pip install "keras_adaptive[tables]"`, or pass a '
            f"mapping of columns. Received: table={os.fspath(path)!r}."
        ) from None
    suffixes = Path(path).suffixes
    if not {".csv", ".parquet"} & set(suffixes):
        raise ValueError(f"`table` must be a file named .csv or .parquet. Received: table={os.fspath(path)!r}.")
    kind = f"a table with the columns {', '.join(names)}"
    with reading(path, kind, "Pass the names of its columns as `user`, `item` and `time`."):
        if ".parquet" in suffixes:
            return pyarrow.parquet.read_table(path, columns=list(names))
        chosen = pyarrow.csv.ConvertOptions(include_columns=list(names))
        return pyarrow.csv.read_csv(path, convert_options=chosen)


def _column(table, name):
    try:
        column = table[name]
    except Exception:  # every package raises its own
        known = getattr(table, "column_names", getattr(table, "columns", table))  # the first is of PyArrow
        names = ", ".join(map(str, itertools.islice(known, _SHOWN)))
        raise ValueError(f"`table` must have a column {name!r}. Received: a table with the columns {names}.") from None
    if hasattr(column, "dictionary_encode"):  # of PyArrow
        return column
    if isinstance(column, (list, tuple)):  # NumPy would make strings of numbers beside strings
        return np.fromiter(column, object, len(column))
    column = np.asarray(column)
    if column.ndim != 1:
        raise ValueError(f"The column {name!r} must have one dimension. Received: shape={column.shape}.")
    return column


def numbered(column: Any, name: str) -> tuple[list[Hashable], np.ndarray]:
    """Returns the distinct values of a column, and for each row the number of its value.

    Args:
        column: A column of `read_columns`.
        name: Its name, for errors.

    Returns:
        `(values, numbers)`: a list of Python objects, in any order, and integers (rows,).

    Raises:
        ValueError: If a value is missing (None, NaN or an empty string), or the values have several types.
    """
    if hasattr(column, "dictionary_encode"):
        values, numbers = _numbered_by_arrow(column, name)
    elif column.dtype.kind in "OUS":
        values, numbers = _numbered_by_dict(column, name)
    else:
        values, numbers = _numbered_by_numpy(column)
    _check_values(values, name)
    return values, numbers


def _numbered_by_numpy(column):
    if column.dtype.kind in "iu" and np.can_cast(column.dtype, np.int64):
        least, most = int(column.min()), int(column.max())
        if most - least < _DENSE * len(column):  # a table of all integers between them is faster than a sort
            places = column.astype(np.int64) - least
            seen = np.zeros(most - least + 1, bool)
            seen[places] = True
            return (np.flatnonzero(seen) + least).tolist(), (np.cumsum(seen) - 1)[places]
    values, numbers = np.unique(column, return_inverse=True)
    return values.tolist(), numbers


def _numbered_by_arrow(column, name):
    if column.null_count:
        raise _missing(name, None)
    column = column.dictionary_encode()
    if hasattr(column, "combine_chunks"):
        column = column.unify_dictionaries().combine_chunks()
    return column.dictionary.to_pylist(), np.asarray(column.indices)


def _numbered_by_dict(column, name):
    if column.dtype.kind == "O":
        _check_types(column, name)
    try:
        values = list(dict.fromkeys(column.tolist()))
    except TypeError:
        raise ValueError(f"The column {name!r} must hold hashable values. Received: {column[0]!r}.") from None
    places = dict(zip(values, range(len(values))))
    return values, np.fromiter(map(places.__getitem__, column.tolist()), np.int64, len(column))


def _check_types(column, name):
    types = set(map(type, column))
    if len(types) > 1:
        for value in column[np.fromiter((value is None or _is_nan(value) for value in column), bool, len(column))][:1]:
            raise _missing(name, value)
        kinds = " and ".join(sorted(kind.__name__ for kind in types))
        raise ValueError(
            f"The column {name!r} must hold values of one type, since 5 and '5' would be two values. Received: {kinds}."
        )


def _check_values(values, name):
    for value in values:
        if value is None or value == "" or _is_nan(value):
            raise _missing(name, value)


def _is_nan(value):
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas.NA compares to NA, which is no bool
        return True


def _missing(name, value):
    return ValueError(
        f"The column {name!r} must have a value in every row: remove the rows without one. Received: {value!r}."
    )


def moments(column: Any, name: str) -> np.ndarray:
    """Returns a column of times as an array (rows,) of numbers or of `datetime64`, without time zones (UTC).

    Raises:
        ValueError: If a time is missing or infinite, or the column holds neither numbers nor dates.
    """
    array = np.asarray(column)
    if array.dtype.kind == "O":
        _check_types(array, name)
        numbers = isinstance(array[0], (int, float, np.number))
        array = np.asarray(array.tolist()) if numbers else array
    if array.dtype.kind in "OU":
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # NumPy warns of a time zone, which it subtracts
                array = array.astype("datetime64[us]")
        except (TypeError, ValueError):
            raise _no_time(name, array[0]) from None
    if array.dtype.kind not in "iufM":
        raise _no_time(name, array[0])
    finite = np.isfinite(array)
    if not finite.all():
        raise _missing(name, array[~finite][0])
    return array


def _no_time(name, value):
    return ValueError(
        f"The column {name!r} must hold numbers or dates such as 2026-01-31T12:00 (ISO 8601). Received: {value!r}."
    )
