"""Tutorials, run as programs with other sizes."""

import ast
import os

from tests.support.parts import ROOT


def run_tutorial(name, folder, **values):
    """Runs a tutorial in a folder with other values of names that it sets to constants, and returns all its names."""
    path = ROOT / "scripts" / "tutorials" / f"{name}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            (target,) = node.targets
            node.value = ast.copy_location(ast.Constant(values.pop(target.id, node.value.value)), node.value)
    assert not values, f"{name} sets no {list(values)}"
    names, here = {"__name__": "__main__"}, os.getcwd()
    os.chdir(folder)
    try:
        exec(compile(tree, str(path), "exec"), names)
    finally:
        os.chdir(here)
    return names
