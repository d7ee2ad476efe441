"""Files of text by their paths, or by addresses of fsspec such as `s3://bucket/a.txt` or `zip://a.txt::b.zip`."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import re
from pathlib import Path, PurePosixPath

from keras_adaptive.files import reading

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # and .zst


def is_address(path):
    """Returns whether a path is an address of fsspec."""
    return isinstance(path, str) and ("://" in path or "::" in path)


def join(folder, name):
    """Returns the path or the address of a file in a folder."""
    if not is_address(folder):
        return Path(folder, name)
    first, *others = folder.split("::")
    return "::".join([first + ("" if first.endswith("/") else "/") + name, *others])


def is_file(path):
    return os.path.isfile(path) if not is_address(path) else _kind(path) == "file"


def is_folder(path):
    return os.path.isdir(path) if not is_address(path) else _kind(path) == "directory"


def names(folder):
    """Returns the names of all files in a folder, at any depth, in order and without hidden ones."""
    if is_address(folder):
        with _reachable(folder):
            system, root = _located(folder)
            found = [path[len(root.rstrip("/")) :].lstrip("/") for path in system.find(root)]
    else:
        found = [path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()]
    return sorted(name for name in found if not re.search(r"(^|/)\.", name))


def suffix(path):
    """Returns the suffix of a file in lower case, such as ".txt", without the suffix of a compression."""
    path = PurePosixPath(str(path).split("::")[0].lower())
    return (path.with_suffix("") if path.suffix in (*_OPENERS, ".zst") else path).suffix


@contextlib.contextmanager
def open_file(path):
    """Opens a file of bytes as it is, in which one can seek."""
    if not is_address(path):
        with open(path, "rb") as file:
            yield file
        return
    with _reachable(path):
        system, place = _located(path)
        with system.open(place, "rb") as file:
            yield file


@contextlib.contextmanager
def open_text(path):
    """Opens a file of bytes and decompresses it while it is read, if its name ends with .gz, .bz2, .xz or .zst."""
    compression = PurePosixPath(str(path).split("::")[0].lower()).suffix
    with open_file(path) as file:
        if compression not in (*_OPENERS, ".zst"):
            yield file
            return
        with reading(path, f"a {compression} file", "Compress it again."):
            opened = _zstandard(path, file) if compression == ".zst" else _OPENERS[compression](file)
            with io.BufferedReader(opened, 1 << 20) as text:
                yield text


def pyarrow(path):
    """Returns the package PyArrow with its Parquet reader, which `path` needs."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f'{path} needs PyArrow: pip install "keras_adaptive[tables]".') from None
    return pyarrow


def _zstandard(path, file):
    arrow = pyarrow(path)
    return arrow.CompressedInputStream(arrow.PythonFile(file, "r"), "zstd")


def _located(path):
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f'{path} needs fsspec: pip install "keras_adaptive[remote]".') from None
    return url_to_fs(path)


def _kind(path):
    """Returns "file", "directory" or None for what is at an address."""
    with _reachable(path):
        system, place = _located(path)
        try:
            return system.info(place)["type"]
        except FileNotFoundError:
            return None


@contextlib.contextmanager
def _reachable(path):
    """Converts the errors of a file system, of which each has its own, into an OSError of one line with the address."""
    try:
        yield
    except (ModuleNotFoundError, MemoryError):
        raise
    except ImportError as error:  # fsspec names the package that a protocol needs
        raise ModuleNotFoundError(f"{path}: {error}") from error
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(path):
            raise
        text = " ".join(str(error).split())[:200]
        raise OSError(
            f"{path} cannot be read ({type(error).__name__}: {text}). Check the address and the right to read it, and "
            "run the same again."
        ) from error
