"""The form of docstrings, citations and errors."""

import ast
import re

import pytest

from tests.support.parts import FILES, ROOT

pytestmark = pytest.mark.once

TREES = {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
SECTIONS = ["Args", "Attributes", "Call arguments", "Input shape", "Output shape"]
SECTIONS += ["Returns", "Yields", "Raises", "Reference", "Example"]
HEADING = re.compile(r"^([A-Z][a-z]+(?: [a-z]+)?):$", re.MULTILINE)
YEAR = re.compile(r"\b(?:19|20)\d\d\b")
CITATION = re.compile(r", (?:[A-Z]{3,} |RecSys )*(?:19|20)\d\d\b")  # Authors, Title, VENUE YEAR
NO_CITATION = re.compile(r"[A-Z]\w+ & [A-Z]|\w \((?:19|20)\d\d\)")  # A & B (YEAR)
ERROR = re.compile(r"(?:.*\. )?Received: .+\.|.*Received:", re.DOTALL)  # TensorFlow's assertions append the value
NAMELESS = re.compile(r"(?:`\S+`(?: and `\S+`)?|--\S+) must .*Received: '?\{\}(?!=)")


def docstrings(tree):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [text for node in ast.walk(tree) if isinstance(node, documented) and (text := ast.get_docstring(node))]


def is_ordered(text):
    """Returns whether a docstring has only the sections of `SECTIONS`, in their order."""
    headings = HEADING.findall(text)
    return headings == [section for section in SECTIONS if section in headings]


def is_cited(text):
    """Returns whether a docstring cites as in "Baevski and Auli, Adaptive Input Representations, ICLR 2019"."""
    text = re.sub(r"(?<=\S)\n *(?=\S)", " ", text)
    reference = text.partition("Reference:")[2].partition("\n\n")[0]
    return not NO_CITATION.search(text) and len(CITATION.findall(reference)) == len(YEAR.findall(reference))


def strings(tree):
    """Yields all strings except docstrings, with {} for what they format."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= set(map(id, node.values))
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def is_error(text):
    """Returns whether a message says "condition. Received: name=value.", if it says at all what was received."""
    return not re.search(r"\b[Rr]eceived\b", text) or bool(ERROR.fullmatch(text)) and not NAMELESS.match(text)


@pytest.mark.parametrize(
    "texts, holds, bad",
    [
        (docstrings, is_ordered, ["Reference:\n    A, 2019.\n\nArgs:\n    x: A.", "Examples:\n    >>> 1"]),
        (docstrings, is_cited, ["By Sun & Iyyer", "By Sun (2021)", "Reference:\n    A, Title 2019, section 3."]),
        (strings, is_error, ["`x` must be 1. Received {}.", "`x` must be 1. Received: {}.", "x. Received: x={}"]),
    ],
    ids=["sections", "citations", "errors"],
)
def test_texts_have_one_form(texts, holds, bad):
    assert not any(map(holds, bad))
    assert [(name, text[:80]) for name, tree in TREES.items() for text in texts(tree) if not holds(text)] == []
