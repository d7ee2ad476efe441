"""The size of files and constructors, and the places that may ask which backend runs."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("keras_adaptive", "trainers", "scripts") for path in (ROOT / folder).rglob("*.py"))
MAY_ASK_FOR_THE_BACKEND = {  # outside of backend/ and ops/: why
    "distribution/strategies.py": "every strategy is one of an engine",
    "export/saved_model.py": "SavedModels are made on TensorFlow",
    "layers/flat_dense.py": "torch adds a bias within the product",
    "layers/inputs/char_cnn.py": "eager torch on a CPU needs no static shapes",
    "optimizers/nag.py": "fused kernels",
}
STARTS_PROCESSES = {"subprocess.run", "subprocess.Popen", "programs.run", "ask"}


def name(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*FILES, *sorted((ROOT / "tests").rglob("*.py"))], ids=name)
def test_files_have_400_lines_at_most(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", FILES, ids=name)
def test_constructors_have_8_arguments_at_most_and_take_few_by_position(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    arguments = [*method.args.args, *method.args.kwonlyargs]
                    by_position = 8 if path.is_relative_to(ROOT / "scripts") else 5
                    assert len(arguments) - 1 <= 8 and len(method.args.args) - 1 <= by_position, node.name


def test_the_backend_is_asked_for_in_few_places():
    package = ROOT / "keras_adaptive"
    asking = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "config.backend()" in path.read_text(encoding="utf-8") or "backend.backend()" in path.read_text()
    }
    asking = {path for path in asking if path.split("/")[0] not in ("backend", "ops")}
    assert asking == set(MAY_ASK_FOR_THE_BACKEND)


def test_every_test_that_starts_processes_is_marked():
    """As far as its own lines, or those of a function of its file, call for one."""
    missing = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        calls = {name: set(map(ast.unparse, called(node))) for name, node in functions.items()}
        starting = {name for name, names in calls.items() if names & STARTS_PROCESSES}
        starting |= {name for name, names in calls.items() if names & starting}
        if not any(isinstance(node, ast.Assign) and "mark.processes" in ast.unparse(node) for node in tree.body):
            missing += [
                f"{name(path)}::{test}"
                for test in sorted(starting)
                if test.startswith("test_")
                and not any("mark.processes" in ast.unparse(mark) for mark in functions[test].decorator_list)
            ]
    assert missing == []


def called(node):
    return [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]


def test_no_room_holds_more_than_a_fifth_of_the_lines():
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    rooms = {}
    for path, count in lines.items():
        parts = path.relative_to(ROOT).parts
        room = "/".join(parts[:2]) if parts[0] == "keras_adaptive" and len(parts) > 2 else parts[0]
        rooms[room] = rooms.get(room, 0) + count
    assert max(rooms.values()) <= 0.2 * sum(lines.values()), sorted(rooms.items(), key=lambda pair: -pair[1])[:3]
