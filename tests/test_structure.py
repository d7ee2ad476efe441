"""The size of files and constructors, and the places that may ask which backend runs."""

import ast
import inspect

import pytest

from tests.support.parts import FILES, PARTS, ROOT, public

pytestmark = pytest.mark.once

MAY_ASK_FOR_THE_BACKEND = {  # outside of backend/ and ops/: why
    "distribution/strategies.py": "every strategy is one of an engine",
    "export/saved_model.py": "SavedModels are made on TensorFlow",
    "layers/inputs/char_cnn.py": "eager torch on a CPU needs no static shapes",
    "optimizers/nag.py": "fused kernels",
}
# Outputs whose bases have arguments that they set themselves, or that every output has: `loss`, `input_dropout`.
INHERIT = {"AdaptiveSoftmax", "CharCNNSoftmax", "CharLSTMSoftmax", "LinearCrossEntropy", "SampledSoftmax"}
INHERIT |= {"TextBatches"}  # a data set of batches, which it makes itself
MANY = {"prepare"}  # five arguments decide the tokens, and five say where the text is and who reads it
# Functions that pass `name` and `dtype` to a layer.
PASS_ON = {"shortformer", "transformer", "transformer_xl", "hybrid_transformer"}
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


def arguments_of(function):
    """Returns the names of the arguments except those of every Keras layer, and whether it takes others."""
    parameters = inspect.signature(function).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = {parameter.name for parameter in parameters if parameter.kind not in variable}
    others = any(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    return names - {"self", "name", "dtype", "trainable"}, others


def constructors(cls):
    """Returns the constructors of a class of the package and of its bases, as far as the arguments reach."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("keras_adaptive.")]
    made = [vars(base)["__init__"] for base in ours if "__init__" in vars(base)]
    stop = next((number for number, one in enumerate(made) if not arguments_of(one)[1]), len(made))
    return made[: stop + 1]


@pytest.mark.parametrize("part", PARTS)
def test_every_argument_is_visible_and_there_are_few(part):
    """A constructor has 8 arguments at most, a function 10, and none hides an argument of its own in `**kwargs`."""
    many, hiding = [], []
    for value in public(part).values():
        made = constructors(value) if inspect.isclass(value) else [value]
        own, *inherited = [arguments_of(one)[0] for one in made] or [set()]
        if len(own.union(*inherited)) > (8 if inspect.isclass(value) else 10):
            many.append(value.__name__)
        if set().union(*inherited) - own or inspect.isfunction(value) and arguments_of(value)[1]:
            hiding.append(value.__name__)
    assert set(many) - INHERIT - MANY == set() and set(hiding) - INHERIT - PASS_ON == set()


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
    """A test counts if it, or a function of its file that it calls, starts a process."""
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
