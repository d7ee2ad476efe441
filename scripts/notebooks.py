"""Makes the notebooks of docs/notebooks from the tutorials: python -m scripts.notebooks [NAME...]

A tutorial is a program in the percent format of Jupytext: `# %%` begins a cell of code and `# %% [markdown]` a cell of
text. The notebook has the same cells after one that installs the package where it is missing, as on Colab, and the
outputs of running them. It needs `pip install ".[notebooks]"` and a few minutes a notebook. A test compares the cells.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
EXTRAS = {"own_model": "jax", "recommender": "jax", "fine_tuning": "jax,hub", "surprisal": "jax,plots"}
INSTALL = """import importlib.util
import os

if importlib.util.find_spec("keras_adaptive") is None:  # as on Colab
    %pip install --quiet "keras_adaptive[{extras}]"
os.environ["KERAS_BACKEND"] = "jax"  # or "tensorflow" or "torch\""""


def cells(name):
    """Returns the list of the `(kind, source)` of the cells of a notebook, "markdown" or "code"."""
    title, *others = re.split(r"^# %%", (ROOT / "scripts/tutorials" / f"{name}.py").read_text(), flags=re.M)[1:]
    parts = [_cell(part) for part in (title, *others)]
    return [parts[0], ("code", INSTALL.format(extras=EXTRAS[name])), *parts[1:]]


def _cell(part):
    head, source = part.split("\n", 1)
    if head.strip() == "[markdown]":
        return "markdown", re.sub(r"^# ?", "", source.strip(), flags=re.M)
    return "code", source.strip()


def executed(name):
    """Returns the notebook of a tutorial with what it prints and draws."""
    import nbclient
    from nbformat import v4

    kinds = {"markdown": v4.new_markdown_cell, "code": v4.new_code_cell}
    notebook = v4.new_notebook(cells=[kinds[kind](source) for kind, source in cells(name)])
    with tempfile.TemporaryDirectory() as folder:
        where = {"kernel_name": "python3", "resources": {"metadata": {"path": folder}}}
        nbclient.NotebookClient(notebook, timeout=None, coalesce_streams=True, **where).execute()
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"{name}-{number}".replace("_", "-"), {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _is_shown(output)]
    return notebook


def _is_shown(output):
    """Returns whether a notebook keeps an output: no messages, and no values, which a program does not print either."""
    return output.get("name") != "stderr" and output.output_type != "execute_result"


def main(names):
    import nbformat

    os.environ["PYTHONPATH"] = str(ROOT)  # for the processes of the notebooks
    FOLDER.mkdir(exist_ok=True)
    for name in names or EXTRAS:
        path = FOLDER / f"{name}.ipynb"
        nbformat.write(executed(name), path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
