"""Files and folders that exist completely or not at all, even if the process or the machine stops."""

import contextlib
import json
import os
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


def write_json(path, value):
    """Writes a value as JSON, the whole file or nothing, and makes the folders above it."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(partial(path)).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    commit(path)


def read_json_lines(path):
    """Returns the records of a JSON lines file, without a last line that is still being written."""
    records = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n")[:-1], 1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{number}: not a JSON object ({error.msg}).") from None
    return records


def discard(path):
    """Removes what a failed write of `path` left."""
    with contextlib.suppress(OSError):
        os.remove(partial(path))


@contextlib.contextmanager
def complete_or_absent(folder):
    """Yields a temporary sibling of `folder` to write into, which is renamed to `folder` on success."""
    folder = Path(os.path.abspath(folder))
    new = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(new, ignore_errors=True)  # from a process of this number that was killed
    new.mkdir(parents=True)
    try:
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
