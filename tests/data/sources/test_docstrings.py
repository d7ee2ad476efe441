import sys

import pytest

from keras_adaptive.data import write_docstrings
from keras_adaptive.data.sources import docstrings
from tests.support.refusals import refused

pytestmark = pytest.mark.once

MODULE = '''
"""About the module.

Second  paragraph,
on two lines.
"""
raise RuntimeError("imported")

class A:
    """About A."""

    async def f(self):
        """About f."""
        if True:
            def g():
                """About g: \\ud800."""

try:
    import nothing
except ImportError:
    def twice():
        """About A."""
    def h():
        """About h."""

x = "not a docstring"
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that must not be imported, and a standard library of one module."""
    root = tmp_path / "site" / "pack"
    (root / "tests").mkdir(parents=True)
    (root / "__init__.py").write_text(MODULE, encoding="utf-8")
    (root / "broken.py").write_text("def (", encoding="utf-8")
    (root / "tests" / "test_a.py").write_text('"""A test."""', encoding="utf-8")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "single.py").write_text('"""One module."""', encoding="utf-8")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "lib"))
    monkeypatch.setattr("pydoc_data.topics.topics", {"assert": "The topic.\n\nAbout f."})
    monkeypatch.syspath_prepend(tmp_path / "site")
    return root


def lines(folder):
    return sorted(line for path in folder.iterdir() for line in path.read_text(encoding="utf-8").splitlines())


def test_every_docstring_once_and_a_paragraph_a_line(package, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    write_docstrings(out, ["pack"])
    assert sorted(path.name for path in out.iterdir()) == ["test.txt", "train.txt", "valid.txt"]
    expected = ["About A.", "About f.", "About g: ?.", "About h.", "About the module.", "One module."]
    assert lines(out) == sorted([*expected, "Second paragraph, on two lines.", "The topic.", "About f."])
    assert "pack" not in sys.modules


def test_the_order_does_not_depend_on_the_disk(package, monkeypatch):
    names = [name for name, _ in docstrings._documents(["pack"])]
    files = docstrings._python_files
    monkeypatch.setattr(docstrings, "_python_files", lambda root: reversed(list(files(root))))
    assert [name for name, _ in docstrings._documents(["pack"])] == names


def test_packages_come_only_when_asked_for(package, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    write_docstrings(out)
    assert lines(out) == ["About f.", "One module.", "The topic."]


@pytest.mark.parametrize("name", ["no_such_package", "pack.tests", "../pack", "sys"])
def test_packages_must_be_installed(package, tmp_path, name):
    refused(write_docstrings, tmp_path, [name], match="installed packages with Python files")


def test_a_document_is_wholly_in_one_split(package, tmp_path):
    for i in range(100):
        text = f'"""Document {i}."""\ndef f():\n    """Function of {i}."""\n'
        (tmp_path / "lib" / f"m{i}.py").write_text(text, encoding="utf-8")
    write_docstrings(tmp_path)
    for i in range(100):
        text = (tmp_path / f"{docstrings._split(f'/m{i}.py')}.txt").read_text(encoding="utf-8")
        assert f"Document {i}.\nFunction of {i}.\n" in text


def test_shares_of_the_splits():
    splits = [docstrings._split(f"module{i}") for i in range(10_000)]
    assert splits.count("valid") == pytest.approx(500, abs=100)
    assert splits.count("test") == pytest.approx(500, abs=100)
