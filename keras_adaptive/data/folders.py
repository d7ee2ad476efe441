import contextlib
import os
import shutil
from pathlib import Path


@contextlib.contextmanager
def complete_or_absent(folder):
    """Gives a temporary sibling of `folder` to write into, which takes its name if all goes well."""
    folder = Path(os.path.abspath(folder))
    new = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(new, ignore_errors=True)  # from a process of this number that was killed
    new.mkdir(parents=True)
    try:
        yield new
        new.replace(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
