"""Runs a program by its name: `keras-adaptive PROGRAM [flags]`, the same as `python -m trainers.PROGRAM [flags]`."""

import ast
import re
import runpy
import sys
from pathlib import Path

from trainers.experiments.flagfiles import RECIPES
from trainers.support.command_line import HELP

USAGE = """Large-vocabulary language models in Keras 3.

    keras-adaptive PROGRAM [flags]
    keras-adaptive PROGRAM --help
    keras-adaptive --version

Programs:
{programs}

Recipes, as in `keras-adaptive train --flagfile=quickstart`, are the files in {recipes}."""


def main():
    """Runs the program that is named by the first argument of the command line."""
    name, *arguments = sys.argv[1:] or ["--help"]
    descriptions = programs()
    if name in HELP:
        width = max(map(len, descriptions))
        lines = (f"  {name:{width}}  {description}" for name, description in descriptions.items())
        print(USAGE.format(programs="\n".join(lines), recipes=RECIPES))
    elif name == "--version":
        print(f"keras-adaptive {version()}")
    elif name not in descriptions:
        sys.exit(f"keras-adaptive: there is no program {name!r}. Programs: {', '.join(descriptions)}.")
    else:
        sys.argv[1:] = arguments
        runpy.run_module(f"trainers.{name}", run_name="__main__", alter_sys=True)


def version():
    """Returns the version of the package without importing it, which would import Keras."""
    source = (Path(__file__).parents[1] / "keras_adaptive" / "__init__.py").read_text(encoding="utf-8")
    return re.search('^__version__ = "(.*)"$', source, re.MULTILINE)[1]


def programs():
    """Returns the programs, `{name: first line of the docstring}`, without importing them."""
    paths = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return {path.stem: ast.get_docstring(ast.parse(path.read_text("utf-8"))).splitlines()[0] for path in paths}


if __name__ == "__main__":
    main()
