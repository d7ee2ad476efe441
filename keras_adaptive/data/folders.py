import contextlib
import os
import shutil
from pathlib import Path

import filelock


@contextlib.contextmanager
def complete_or_absent(folder):
    """Gives a temporary sibling of `folder` to write into, which takes its name if all goes well."""
    folder = Path(os.path.abspath(folder))
    new = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(new, ignore_errors=True)  # from a process of this number that was killed
    new.mkdir(parents=True)
    try:
        yield new
        flush(new)
        new.replace(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextlib.contextmanager
def workspace(folder):
    """Gives a sibling of `folder` for the work that leads to it, which is there again for a process that goes on.

    It is removed when the work is done, and by a ValueError, which would come again; not when the process is killed.

    Raises:
        ValueError: if another process is at work in it.
    """
    folder = Path(os.path.abspath(folder))
    work = folder.with_name(f"{folder.name}.partial")
    work.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(work / "lock", timeout=0):  # which the system takes back if the process dies
            try:
                yield work
            except ValueError:
                shutil.rmtree(work)
                raise
            shutil.rmtree(work)
    except filelock.Timeout:
        raise ValueError(f"Another process is making {folder}: wait until it ends.") from None


def flush(folder):
    """Waits until the files of a folder are on the disk, and not only in memory."""
    for path in Path(folder).iterdir():
        if path.is_file():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
