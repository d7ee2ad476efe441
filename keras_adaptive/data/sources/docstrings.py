import ast
import hashlib
import importlib.util
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable
from pathlib import Path

_SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def write_docstrings(folder: str | os.PathLike, packages: Iterable[str] = ()) -> None:
    """Writes `train.txt`, `valid.txt` and `test.txt` from the documentation that every Python contains.

    The text consists of the docstrings of the standard library and of installed `packages`, and of the topics of
    `help()`, one paragraph per line. The files are parsed, never imported. A document is a module or a topic. A hash
    of its name determines its split (90 % train, 5 % valid, 5 % test). A document is therefore never divided, and keeps
    its split when other documents are added or removed. A repeated docstring is written only once.

    Args:
        folder: Existing folder for the three files.
        packages: Names of installed packages, such as `["numpy", "keras"]`.

    Raises:
        ValueError: If a package is not installed.
    """
    texts = {"train": [], "valid": [], "test": []}
    seen = set()
    for name, docstrings in _documents(packages):
        for docstring in docstrings:
            if docstring not in seen:
                seen.add(docstring)
                texts[_split(name)] += _paragraphs(docstring)
    for split, lines in texts.items():
        text = "".join(f"{line}\n" for line in lines)
        Path(folder, f"{split}.txt").write_bytes(text.encode(errors="replace"))


def _documents(packages):
    """Yields the (name, docstrings) of every topic and module, in an order that does not depend on the disk."""
    from pydoc_data.topics import topics

    for topic in sorted(topics):
        yield f"topics/{topic}", [topics[topic]]
    roots = [("", sysconfig.get_path("stdlib")), *((name, _location(name)) for name in packages)]
    for package, root in roots:
        for path in sorted(_python_files(root)):
            yield f"{package}/{os.path.relpath(path, root)}".replace(os.sep, "/"), _docstrings(path)


def _location(package):
    """Returns the folder of an installed package, or its only file, without importing it."""
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.has_location:
        raise ValueError(f"`packages` must be installed packages with Python files. Received: the package {package!r}.")
    return spec.submodule_search_locations[0] if spec.submodule_search_locations else spec.origin


def _python_files(root):
    if os.path.isfile(root):
        yield root
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))


def _docstrings(path):
    """Returns the docstrings of a file's module, classes and functions, or an empty list if it does not parse."""
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read())
    except (SyntaxError, ValueError):
        return []
    docstrings = (ast.get_docstring(node) for node in _statements(tree) if isinstance(node, _DOCUMENTED))
    return [docstring for docstring in docstrings if docstring]


def _statements(node):
    """Yields a node and the statements inside it. Expressions, which are most of a file, are skipped."""
    yield node
    for block in ("body", "orelse", "handlers", "finalbody"):
        for child in getattr(node, block, ()):
            yield from _statements(child)


def _paragraphs(docstring):
    paragraphs = re.split(r"\n\s*\n", docstring)
    return [" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip()]


def _split(name):
    percent = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100
    return "test" if percent < 5 else "valid" if percent < 10 else "train"
