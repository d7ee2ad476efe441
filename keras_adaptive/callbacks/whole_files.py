"""Files that are there whole or not at all, whenever the process or the machine stops."""

import contextlib
import os


def partial(path):
    """Where a file is written before it gets its name."""
    return os.path.join(os.path.dirname(path), f"partial_{os.path.basename(path)}")


def commit(path):
    """Gives the file `partial(path)` its name, once all of it is on the disk."""
    _sync(partial(path))
    os.replace(partial(path), path)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        _sync(os.path.dirname(path) or ".")


def discard(path):
    """Takes away what a failed writing of `path` left."""
    with contextlib.suppress(OSError):
        os.remove(partial(path))


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
