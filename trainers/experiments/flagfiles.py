"""Expands flagfiles, which may include others, into plain arguments."""

import os
import re
from pathlib import Path

_FOLDERS = (Path(__file__).parents[1] / "configs", Path(__file__).parents[2] / "configs")  # of the wheel, of a checkout
RECIPES = next(filter(Path.is_dir, _FOLDERS), _FOLDERS[0])
LONGEST = 1 << 20  # largest number of characters in a flagfile
_FLAG = re.compile("--?[a-z_0-9]+(=.*)?")
_PREFIXES = ("--flagfile=", "-flagfile=")


def expand(arguments, folder="", including=()):
    """Returns command-line arguments with every `--flagfile=PATH` replaced by the flags of that file.

    PATH may be the name of a recipe, such as "quickstart" or "books_hybrids/nplm", where no file has this path. A
    flagfile holds one flag per line; empty lines and lines that begin with `#` or `//` are comments. It includes
    another one by its path relative to itself, in `folder`, whatever the working directory, but none of the files
    `including` it. A later flag overrides an earlier one.
    """
    arguments, expanded = list(arguments), []
    while arguments:
        argument = arguments.pop(0)
        if argument in ("--flagfile", "-flagfile") and arguments:
            argument = f"--flagfile={arguments.pop(0)}"
        if argument.startswith(_PREFIXES):
            name = os.path.expanduser(argument.split("=", 1)[1].strip())
            if not name:
                raise ValueError("--flagfile must not be empty: pass the path of a flagfile, or the name of a recipe.")
            expanded += _read(_find(folder, name), including)
        else:
            expanded.append(argument)
        if argument == "--":
            return expanded + arguments
    return expanded


def _find(folder, name):
    """Returns the path of a flagfile, or of the recipe of this name."""
    path = Path(folder, name)
    if path.exists() and not path.is_dir():
        return path
    recipe = RECIPES / (name.removeprefix("configs/").removesuffix(".flags") + ".flags")
    if not recipe.is_file():
        raise FileNotFoundError(f"There is no flagfile {path}, and {RECIPES} holds no recipe of this name.")
    return recipe


def _read(path, including):
    resolved = path.resolve()
    if resolved in including:
        raise ValueError(f"The flagfile {path} includes itself: remove its --flagfile line.")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LONGEST)
    except UnicodeDecodeError as error:
        raise ValueError(f"The flagfile {path} is not UTF-8 ({error.reason}).") from None
    if len(text) == LONGEST:
        raise ValueError(f"The flagfile {path} is longer than {LONGEST:,} characters: it must hold one flag per line.")
    arguments = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith(("#", "//")):
            continue
        if not _FLAG.fullmatch(line):  # the line is not shown: the file may be another than was meant, with secrets
            raise ValueError(f"Line {number} of the flagfile {path} is not a flag: it must look like --name=value.")
        arguments.append(line)
    return expand(arguments, path.parent, (*including, resolved))
