"""Tests a wheel in an environment per backend, without the checkout and without the other backends.

    python -m scripts.try_wheel dist/keras_adaptive-0.2.0-py3-none-any.whl torch jax tensorflow

Each environment contains the wheel, which pip installs, and links to the installed packages that
`keras_adaptive[BACKEND]` requires, so that a requirement that the wheel does not name is missing. In each environment,
the command `keras-adaptive` prepares a corpus, trains a recipe, evaluates, scores and generates. It also draws pictures
on torch, and exports on TensorFlow. All packages that it needs must have a license that permits any use. Python starts
twice in an environment: the programs after the first one are forks of a process that has imported the package.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from packaging.requirements import Requirement

EXTRAS = {"torch": {"torch", "plots"}, "jax": {"jax"}, "tensorflow": {"tensorflow-cpu"}}
TEXT = "the function returns a list of all the names in the current namespace\n" * 40
RECIPE = "--flagfile=quickstart --dim=16 --num_heads=2 --ffn_dim=32 --num_blocks=1 --cutoffs=8 --length=8"
RECIPE += " --batch_size=4 --updates=4 --evaluate_every=2 --log_every=2"
PROGRAMS = [
    "prepare --source=text --data_dir=data --min_count=1 --processes=1",
    f"train {RECIPE} --data_dir=data --run_dir=run",
    "evaluate --run_dir=run",
    "score --run_dir=run --input=text/test.txt --format=json",
    "generate --run_dir=run --prompt=the --length=3",
]
# Runs each command line by the script `sys.argv[1]`, in a process of its own, until one fails.
IN_FORKS = """
import os, runpy, sys
import keras_adaptive.callbacks, keras_adaptive.data, keras_adaptive.models, keras_adaptive.text

script, *commands = sys.argv[1:]
for command in commands:
    process = os.fork()
    if not process:
        sys.argv = [script, *command.split()]
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    if os.waitpid(process, 0)[1]:
        sys.exit(f"This command failed: keras-adaptive {command}")
"""
AT_LAST = {"torch": "plot run", "jax": "--help", "tensorflow": "export --run_dir=run --export_dir=exported"}

PERMISSIVE = re.compile(r"Apache|BSD|MIT|MPL.2|Mozilla Public License 2|PSF|Python Software Foundation")
NO_LICENSE_STATED = {"namex": "Apache-2.0"}  # only the file LICENSE in its wheel states it


def main(wheel, *backends):
    for backend in backends:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try_alone(Path(wheel).resolve(), backend, Path(folder))
        print(f"{backend}: the wheel works alone ({time.monotonic() - start:.0f} s)", flush=True)


def try_alone(wheel, backend, folder):
    """Runs the programs in an environment in `folder`. Exits with their output if one fails."""
    venv.create(folder / "alone", symlinks=True)
    python = folder / "alone" / "bin" / "python"
    (site,) = (folder / "alone" / "lib").glob("python*/site-packages")
    link_packages(wheel, EXTRAS[backend], site)
    install = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", wheel]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KERAS_BACKEND")}
    environment["KERAS_HOME"] = str(folder / "keras")
    run([sys.executable, "-m", "pip", "--python", python, *install], folder, environment)
    (folder / "text").mkdir()
    for split in ("train", "valid", "test"):
        (folder / "text" / f"{split}.txt").write_text(TEXT, encoding="utf-8")
    script, (first, *others) = folder / "alone" / "bin" / "keras-adaptive", [*PROGRAMS, AT_LAST[backend]]
    run([script, *first.split()], folder, environment)
    run([python, "-c", IN_FORKS, script, *others], folder, environment)


def link_packages(wheel, extras, site):
    """Links what the wheel needs with these extras, and what that needs, into a folder of packages."""
    (distribution,) = importlib.metadata.distributions(name="keras_adaptive", path=[str(wheel)])
    waiting, linked = [(distribution, frozenset(extras))], set()
    while waiting:
        distribution, extras = waiting.pop()
        for line in distribution.requires or []:
            needed = Requirement(line)
            if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                continue
            if (needed.name, frozenset(needed.extras)) not in linked:
                linked.add((needed.name, frozenset(needed.extras)))
                waiting.append((importlib.metadata.distribution(needed.name), frozenset(needed.extras)))
        if distribution.name != "keras_adaptive":
            check_license(distribution.metadata)
            link_files(distribution, site)


def check_license(metadata):
    """Exits if the license of a package does not permit any use."""
    classifiers = [line for line in metadata.get_all("Classifier", []) if line.startswith("License")]
    stated = metadata.get("License-Expression"), "; ".join(classifiers), metadata.get("License")
    license = next(filter(None, stated), NO_LICENSE_STATED.get(metadata["Name"], ""))
    if "GPL" in license or not PERMISSIVE.search(license):
        sys.exit(f"{metadata['Name']} has the license {license[:60]!r}, which must be one that permits any use.")


def link_files(distribution, site):
    for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(distribution.locate_file(top))


def run(command, folder, environment):
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main(*sys.argv[1:])
