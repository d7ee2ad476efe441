"""Empty paths, which are the values of unset variables of a shell: every program refuses them."""

import importlib
import re

import pytest
from absl import flags

from tests.support.programs import ROOT, parsed
from tests.support.refusals import refused
from trainers.experiments import experiment, flagfiles
from trainers.experiments.run_folder import RunFolder

pytestmark = pytest.mark.once

PROGRAMS = sorted(
    path.stem for path in (ROOT / "trainers").glob("[!_]*.py") if 'if __name__ == "__main__":' in path.read_text()
)
PATHS = re.compile("(.*_dir|output|input|checkpoint|dictionary|passages|source|baseline|init_from)$")


def defined_by(program):
    """The names of the flags of a program."""
    before = set(flags.FLAGS)
    program.define_flags()
    names = set(flags.FLAGS) - before
    for name in names:
        delattr(flags.FLAGS, name)
    return names


@pytest.mark.parametrize("name", PROGRAMS)
def test_empty_paths_are_refused(name):
    program = importlib.import_module(f"trainers.{name}")
    names = defined_by(program)
    of_paths = [flag for flag in names if PATHS.fullmatch(flag)]
    if name == "train":
        of_paths = [flag for flag in of_paths if flag not in ("input", "output")]  # names of layers
    assert of_paths or name == "plot"
    for flag in of_paths:
        with pytest.raises(flags.Error, match=f"{flag}=: must (not be empty|be paths)"), parsed(program, f"--{flag}="):
            pass
    for lists in ("", ",", "a,", ",a", "a,,b"):
        if name in ("evaluate", "last_words", "serve"):
            with pytest.raises(flags.Error, match="run_dir=.*: must be paths with commas between them"):
                parsed(program, f"--run_dir={lists}").__enter__()


def test_empty_flagfiles_and_folders_are_refused(tmp_path):
    for arguments in (["--flagfile="], ["--flagfile= "], ["--flagfile", ""]):
        refused(flagfiles.expand, arguments, match="--flagfile must not be empty")
    refused(RunFolder, "", match="folder of a run must have a name")
    (tmp_path / "mine.flags").write_text("--init_from=\n")
    for argument in ("--init_from=", f"--flagfile={tmp_path}/mine.flags"):
        refused(experiment.Experiment.of_arguments, [argument], match="init_from=: must not be empty")


SECRETS = ["root:x:0:0:root:/root:/bin/sh", "hunter2", "- password: hunter2", "-----BEGIN KEY-----", "--dim 3", "--"]


@pytest.mark.parametrize("line", SECRETS)
def test_a_flagfile_that_is_another_file_is_not_shown(tmp_path, line):
    (tmp_path / "secrets").write_text(f"# A comment.\n--dim=16\n{line}\n")
    match = "Line 3 of the flagfile .*secrets is not a flag: it must look like"
    message = refused(flagfiles.expand, [f"--flagfile={tmp_path}/secrets"], match=match)
    assert line not in message.replace("--name=value", "")
