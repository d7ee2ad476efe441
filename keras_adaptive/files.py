"""Writes files and folders that exist completely or not at all, even if the process or the machine stops."""

import codecs
import contextlib
import errno
import json
import math
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import filelock

LARGEST = 1 << 28  # largest number of bytes in a file that is read whole


def read_text(path: str | os.PathLike, **options: Any) -> str:
    """Returns the contents of a UTF-8 file read whole: at most 256 MiB, since a sparse file may have any size."""
    with open(path, encoding="utf-8", **options) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST:
            raise ValueError(f"{path} has {size:,} bytes, but at most {LARGEST:,} are read. Put back the right file.")
        return file.read(LARGEST)


def partial(path: str | os.PathLike) -> str:
    """Returns the path to which a file is written before it is renamed to `path`."""
    return os.path.join(os.path.dirname(path), f"partial_{os.path.basename(path)}")


def commit(path: str | os.PathLike) -> None:
    """Renames `partial(path)` to `path`, no device or pipe, after all of its contents have reached the disk."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise ValueError(f"{path} is not a regular file: remove it, or pass another path.")
    _flush_file(partial(path))
    os.replace(partial(path), path)
    _flush_names(os.path.dirname(path))


def json_text(value: Any, **options: Any) -> str:
    """Returns a value as JSON, by `json.dumps(**options)`, in which null replaces numbers that are not finite."""
    return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a text in UTF-8, the whole file or nothing."""
    with writing(path):
        Path(partial(path)).write_text(text, encoding="utf-8")
        commit(path)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes a value as JSON, the whole file or nothing, and creates the folders above it."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json_text(value, indent=1) + "\n")


def check_result(path: str | os.PathLike, keys: Iterable[str] = ()) -> None:
    """Checks that a program can write its result to `path` without replacing a file of others.

    The path must be new, or the result of an earlier call: a file that holds a JSON object with all `keys`. Without
    keys it must be new. Links are followed: a link to a device counts as the device.
    """
    target, keys = os.path.realpath(path), set(keys)
    reasons = {
        "an empty name": not os.fspath(path),
        "a folder": os.path.isdir(target) or not os.path.basename(path),
        "not a regular file": os.path.lexists(target) and not os.path.isfile(target),
        **_reasons_above(target),
        "a file that is not such a result": os.path.isfile(target) and not (keys and _has_keys(target, keys)),
    }
    if refused := [reason for reason, holds in reasons.items() if holds]:
        older = ", or an older result of the same kind, which is replaced" if keys else ""
        raise ValueError(
            f"The file to write must be new{older}. Received: {os.fspath(path)!r}, {refused[0]}. Pass another path."
        )


def _has_keys(path, keys):
    """Returns whether a file holds a JSON object with all `keys`."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and keys <= value.keys()


def read_json_lines(path: str | os.PathLike) -> list[dict]:
    """Returns the objects of a JSON lines file. A last line that is still being written is ignored."""
    records = []
    with reading(path, "a file of JSON lines", "Remove it, or its damaged lines."):
        for number, line in enumerate(read_text(path).split("\n")[:-1], 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: not a JSON object ({error.msg}). Remove the line.") from None
            if not isinstance(record, dict):
                raise ValueError(f"{path}:{number}: not a JSON object. Remove the line.")
            records.append(record)
    return records


@contextlib.contextmanager
def reading(path: str | os.PathLike, kind: str, mend: str) -> Iterator[None]:
    """Converts the errors that a damaged or hostile file raises while it is read into a ValueError of one line.

    A library may raise any error, for example if JSON is nested too deeply or the end of a zip is missing. System
    errors, and a ValueError whose message begins with the path, pass unchanged. The message contains the path, the
    expected `kind` of file, with an article, and the sentence `mend`, which says what to do.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError("it is a folder or a device")
        yield
    except (ModuleNotFoundError, MemoryError):  # these errors are not caused by the file
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: an offset out of range
            raise _naming(error, path) from error
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path} is not {kind}, or is damaged ({_reason(error)}). {mend}") from error


def check_zip(archive: zipfile.ZipFile) -> None:
    """Raises a ValueError if an archive of uncompressed members would unpack to more than its own size."""
    size, unpacked = os.path.getsize(archive.filename), sum(member.file_size for member in archive.infolist())
    if unpacked > size:
        raise ValueError(f"it has {size:,} bytes and would unpack to {unpacked:,}")


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
    """Adds a path to system errors that name none, such as the error of a full disk."""
    try:
        yield
    except OSError as error:
        raise _naming(error, path) from error


def _naming(error, path):
    """Returns a system error with a path, which is added if there is none."""
    if error.filename is None and error.errno:
        return OSError(error.errno, error.strerror, str(path))
    if error.filename is None and re.fullmatch(r"\d+ requested and \d+ written", str(error)):  # a message of NumPy
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return error


def _reason(error):
    text = " ".join(str(error).split())
    text = text if len(text) <= 200 else f"{text[:200]} …"
    return text if type(error) is ValueError else f"{type(error).__name__}: {text}"


def read_text_lines(
    source: IO[bytes], name: str | None = None, longest: int = 1 << 24, keeps_mark: bool = False
) -> Iterator[str]:
    """Yields the lines of a binary file or pipe as strings without line ends. Errors contain the number of the line.

    A line has at most `longest` bytes, so that a device such as /dev/zero does not fill the memory. A byte order mark
    at the beginning is removed, unless `keeps_mark`, as in a corpus of bytes, where it is text.
    """
    for number, line in enumerate(iter(lambda: source.readline(longest), b""), 1):
        where = f"Line {number} of {name}" if name else f"Line {number}"
        if len(line) == longest:
            raise ValueError(f"{where} is longer than {longest:,} bytes: break it into lines.")
        if number == 1 and not keeps_mark:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{where} is not UTF-8 ({error.reason}): convert the text to UTF-8.") from None


def checksum(path: str | os.PathLike) -> int:
    """Returns the CRC-32 of a file, which is read a part at a time."""
    result = 0
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            result = zlib.crc32(part, result)
    return result


def discard(path: str | os.PathLike) -> None:
    """Removes the partial file that a failed write of `path` has left."""
    with contextlib.suppress(OSError):
        os.remove(partial(path))


def check_new_folder(folder: str | os.PathLike) -> None:
    """Checks, before any work, that a finished folder can be renamed to `folder`.

    Only a new path or an empty folder is accepted. A folder cannot replace a link, the working directory or a mounted
    disk, and nothing can be created in a file or in a read-only folder.
    """
    reasons = {
        "an empty name": not os.fspath(folder),
        "a link": os.path.islink(folder),
        "the working directory": os.path.realpath(folder) == os.path.realpath("."),
        "a mounted disk": os.path.ismount(folder),
        "a file": os.path.isfile(folder),
        **_reasons_above(folder),
    }
    refused = [reason for reason, holds in reasons.items() if holds]
    if refused:
        raise ValueError(
            f"The output folder must not exist or must be empty. Received: {os.fspath(folder)!r}, {refused[0]}. "
            "Pass another."
        )


def _reasons_above(path):
    """Returns reasons why nothing can be created at a path, and whether each holds."""
    above = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return {
        "in something that is not a folder": not os.path.isdir(above),
        "in a folder that cannot be written": not os.access(above, os.W_OK),
    }


@contextlib.contextmanager
def complete_or_absent(folder: str | os.PathLike) -> Iterator[Path]:
    """Yields a temporary folder beside `folder` to write into, which is renamed to `folder` on success."""
    check_new_folder(folder)
    folder = Path(os.path.abspath(folder))
    new = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(new, ignore_errors=True)  # a killed process with the same id may have left it
    new.mkdir(parents=True)
    try:
        with writing(folder):
            yield new
            flush(new)
            new.replace(folder)
            _flush_names(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextlib.contextmanager
def workspace(folder: str | os.PathLike) -> Iterator[Path]:
    """Yields a folder beside `folder` for intermediate files, which a later process can use, but only one at a time.

    The folder is removed when the block ends, and on a ValueError, which a later process would raise again. It stays if
    the process is killed, or as far as a worker of a killed process still writes to it.
    """
    folder = Path(os.path.abspath(folder))
    work = folder.with_name(f"{folder.name}.partial")
    work.mkdir(parents=True, exist_ok=True)
    with alone(folder, work / "lock"):
        try:
            yield work
        except ValueError:
            shutil.rmtree(work, ignore_errors=True)
            raise
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def alone(folder: str | os.PathLike, lock: str | os.PathLike) -> Iterator[None]:
    """Holds the file `lock` while `folder` is made; a ValueError tells a second process to wait."""
    try:
        # The system releases the lock of a process that dies, as soon as a process that it was starting has started.
        with filelock.FileLock(lock, timeout=1):
            yield
    except filelock.Timeout:
        raise ValueError(f"Another process is making {folder}: wait until it ends.") from None


def flush(folder: str | os.PathLike) -> None:
    """Waits until all files in a folder and below, and their names, have reached the disk."""
    for path in (Path(folder), *Path(folder).rglob("*")):
        if path.is_dir():
            _flush_names(path)
        elif path.is_file():
            _flush_file(path)


def _flush_file(path):
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _flush_names(folder):
    """Waits until the names in a folder have reached the disk, which only POSIX systems support."""
    if os.name == "posix":
        descriptor = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
