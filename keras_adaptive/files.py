"""Files and folders that exist completely or not at all, even if the process or the machine stops."""

import codecs
import contextlib
import errno
import json
import math
import os
import re
import shutil
from pathlib import Path

import filelock


def partial(path):
    """Returns the path where a file is written before it gets its name."""
    return os.path.join(os.path.dirname(path), f"partial_{os.path.basename(path)}")


def commit(path):
    """Renames `partial(path)` to `path` once all of it is on the disk."""
    _flush_file(partial(path))
    os.replace(partial(path), path)
    _flush_names(os.path.dirname(path))


def json_text(value, **options):
    """Returns a value as JSON; null takes the place of numbers that are not finite, which JSON cannot hold.

    Args:
        value: Numbers, strings, lists, tuples and dicts.
        **options: Arguments of `json.dumps`.
    """
    return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path, value):
    """Writes a value as JSON, the whole file or nothing, and makes the folders above it."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        Path(partial(path)).write_text(json_text(value, indent=1) + "\n", encoding="utf-8")
        commit(path)


def read_json_lines(path):
    """Returns the records of a JSON lines file, without a last line that is still being written."""
    records = []
    with reading(path, "a file of JSON lines", "Remove it, or its damaged lines."):
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n")[:-1], 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: not a JSON object ({error.msg}). Remove the line.") from None
            if not isinstance(record, dict):
                raise ValueError(f"{path}:{number}: not a JSON object. Remove the line.")
            records.append(record)
    return records


@contextlib.contextmanager
def reading(path, kind, mend):
    """Turns whatever a damaged or hostile file raises while it is read into one line.

    A line of JSON may be too deep, a zip may lack its end, and a library may raise any error on either. Errors of the
    system, and a ValueError whose message begins with the path, pass unchanged.

    Args:
        path: Path of the file.
        kind: What the file must be, with an article.
        mend: Sentence that says what to do.

    Raises:
        ValueError: If the block raises an error. The message holds the path and these texts.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError("it is a folder or a device")
        yield
    except (ModuleNotFoundError, MemoryError):  # say nothing about the file
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # a place outside of a file
            raise _naming(error, path) from error
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path} is not {kind}, or is damaged ({_reason(error)}). {mend}") from error


def check_zip(archive):
    """Raises a ValueError if a `zipfile.ZipFile` of uncompressed members would unpack to more than it is."""
    size, unpacked = os.path.getsize(archive.filename), sum(member.file_size for member in archive.infolist())
    if unpacked > size:
        raise ValueError(f"it has {size:,} bytes and would unpack to {unpacked:,}")


@contextlib.contextmanager
def writing(path):
    """Names a path in errors of the system that name none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        raise _naming(error, path) from error


def _naming(error, path):
    """Returns an error of the system with a path, if it has none."""
    if error.filename is None and error.errno:
        return OSError(error.errno, error.strerror, str(path))
    if error.filename is None and re.fullmatch(r"\d+ requested and \d+ written", str(error)):  # of NumPy
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return error


def _reason(error):
    text = " ".join(str(error).split())
    text = text if len(text) <= 200 else f"{text[:200]} …"
    return text if type(error) is ValueError else f"{type(error).__name__}: {text}"


def read_text_lines(source, name=None, longest=1 << 24, keeps_mark=False):
    """Yields the lines of a binary file or pipe as texts without their ends, the first without a byte order mark.

    Args:
        source: The open file.
        name: Its name, for messages. Optional.
        longest: Number of bytes of the longest line, so that a device such as /dev/zero does not fill the memory.
        keeps_mark: Whether the byte order mark is text, as in a corpus of bytes, and not a trace of some editors.

    Raises:
        ValueError: If a line is not UTF-8 or too long. The message holds its number.
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


def discard(path):
    """Removes what a failed write of `path` left."""
    with contextlib.suppress(OSError):
        os.remove(partial(path))


def check_new_folder(folder):
    """Raises a ValueError, before any work, if a finished folder could not be renamed to `folder`.

    Anything but a new path or an empty folder of its own is refused: a folder cannot replace a link, the working
    directory or a mounted disk, and nothing can be made in a file or in a folder that is read-only.
    """
    above = os.path.dirname(os.path.abspath(folder))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    reasons = {
        "an empty name": not os.fspath(folder),
        "a link": os.path.islink(folder),
        "the working directory": os.path.realpath(folder) == os.path.realpath("."),
        "a mounted disk": os.path.ismount(folder),
        "a file": os.path.isfile(folder),
        "in something that is no folder": not os.path.isdir(above),
        "in a folder that cannot be written": not os.access(above, os.W_OK),
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise ValueError(f"The folder to make must be new. Received: {os.fspath(folder)!r}, {found[0]}. Pass another.")


@contextlib.contextmanager
def complete_or_absent(folder):
    """Yields a temporary sibling of `folder` to write into, which is renamed to `folder` on success."""
    check_new_folder(folder)
    folder = Path(os.path.abspath(folder))
    new = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(new, ignore_errors=True)  # from a process of this number that was killed
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
def workspace(folder):
    """Yields a sibling of `folder` for intermediate work, which a later process finds again.

    It is removed when the work is done, and on a ValueError, which would be raised again; not if the process is killed.

    Raises:
        ValueError: If another process works in it.
    """
    folder = Path(os.path.abspath(folder))
    work = folder.with_name(f"{folder.name}.partial")
    work.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(work / "lock", timeout=0):  # released by the system if the process dies
            try:
                yield work
            except ValueError:
                shutil.rmtree(work)
                raise
            shutil.rmtree(work)
    except filelock.Timeout:
        raise ValueError(f"Another process is making {folder}: wait until it ends.") from None


def flush(folder):
    """Waits until the files of a folder are on the disk."""
    for path in Path(folder).iterdir():
        if path.is_file():
            _flush_file(path)


def _flush_file(path):
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _flush_names(folder):
    """Waits until the names in a folder are on the disk, which only POSIX systems support."""
    if os.name == "posix":
        descriptor = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
