"""Flagfiles that include one another, help, and the choice of a backend."""

import json
import os
import re
import sys

import pytest
from absl import flags

import trainers
from tests.support.programs import ROOT, run
from tests.support.refusals import refused
from trainers.__main__ import main
from trainers.experiments import experiment, flagfiles
from trainers.experiments.hyperparameters import GENERAL, HYPERPARAMETERS
from trainers.experiments.parts import PARTS
from trainers.support import command_line

pytestmark = [pytest.mark.once, pytest.mark.processes]


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_flagfiles_include_files_relative_to_themselves(tmp_path, monkeypatch):
    write(tmp_path / "parts" / "deep" / "base.flags", "# a comment", "", "--dim=1", "  --seed=3  ")
    write(tmp_path / "parts" / "corpus.flags", "--flagfile=deep/base.flags", "// another comment", "--dim=2")
    recipe = write(tmp_path / "recipe.flags", "--flagfile=parts/corpus.flags", "--length=4")
    (tmp_path / "elsewhere").mkdir()
    for folder, name in (("elsewhere", recipe), (".", "recipe.flags"), ("elsewhere", "../recipe.flags")):
        monkeypatch.chdir(tmp_path / folder)
        expected = ["--a=1", "--dim=1", "--seed=3", "--dim=2", "--length=4", "--b", "2"]
        assert flagfiles.expand(["--a=1", f"--flagfile={name}", "--b", "2"]) == expected
        assert flagfiles.expand(["--a=1", "--flagfile", str(name), "--b", "2"]) == expected
    assert flagfiles.expand(["--", "--flagfile=nothing"]) == ["--", "--flagfile=nothing"]


def test_a_flagfile_may_be_included_twice_but_not_by_itself(tmp_path):
    write(tmp_path / "base.flags", "--dim=1")
    twice = write(tmp_path / "twice.flags", "--flagfile=base.flags", "--flagfile=base.flags")
    assert flagfiles.expand([f"--flagfile={twice}"]) == ["--dim=1", "--dim=1"]
    write(tmp_path / "b.flags", "--flagfile=a.flags")
    circle = write(tmp_path / "a.flags", "--flagfile=b.flags")
    refused(flagfiles.expand, [f"--flagfile={circle}"], match="a.flags includes itself")


def test_a_missing_flagfile_is_named(tmp_path):
    recipe = write(tmp_path / "recipe.flags", "--flagfile=parts/none.flags")
    refused(flagfiles.expand, [f"--flagfile={recipe}"], match="parts/none.flags", error=OSError)


def test_recipes_are_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quickstart = (ROOT / "configs" / "quickstart.flags").read_text().split()
    for name in ("quickstart", "quickstart.flags", "configs/quickstart.flags"):
        assert flagfiles.expand([f"--flagfile={name}"])[-1] == quickstart[-1]
    assert "--body=nplm" in flagfiles.expand(["--flagfile=books_hybrids/nplm"])
    write(tmp_path / "mine.flags", "--flagfile=quickstart", "--dim=1")
    assert flagfiles.expand(["--flagfile=mine.flags"])[-2:] == [quickstart[-1], "--dim=1"]
    (tmp_path / "quickstart").mkdir()
    assert flagfiles.expand(["--flagfile=quickstart"])[-1] == quickstart[-1]
    write(tmp_path / "quickstart.flags", "--dim=2")  # a file comes before a recipe
    assert flagfiles.expand(["--flagfile=quickstart.flags"]) == ["--dim=2"]
    unknown = "no flagfile quick_start, and .*configs holds no recipe of this name"
    refused(flagfiles.expand, ["--flagfile=quick_start"], match=unknown, error=OSError)


def test_a_flagfile_may_be_a_pipe(tmp_path):
    """A shell passes such a pipe by `--flagfile=<(…)`."""
    reading, writing = os.pipe()
    os.write(writing, b"--dim=1\n")
    os.close(writing)
    assert flagfiles.expand([f"--flagfile=/dev/fd/{reading}"]) == ["--dim=1"]
    os.close(reading)


def test_programs_are_run_by_their_name(capsys, monkeypatch, forks):
    monkeypatch.setattr(sys, "argv", ["keras-adaptive", "--help"])
    main()
    text = capsys.readouterr().out
    for path in (ROOT / "trainers").glob("[!_]*.py"):
        is_program = "__main__" in path.read_text() and path.stem != "command_line"
        assert bool(re.search(rf"^  {path.stem} +[A-Z].*\.$", text, re.MULTILINE)) == is_program, path
    done = run("-m", "trainers", "plot")
    assert done.returncode == 1 and done.stderr.startswith("plot: Give at least one RUN")
    monkeypatch.setattr(sys, "argv", ["keras-adaptive", "trian"])
    refused(main, error=SystemExit, match="there is no program 'trian'. Programs: .* train")


@pytest.fixture
def defined():
    before = set(flags.FLAGS)
    experiment.define_flags()
    yield
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)


def test_help_shows_the_flags_of_the_experiment_by_part(defined, capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.parse(["program", "--help"])
    assert not ended.value.code
    text = capsys.readouterr().out
    for name in [*PARTS, *GENERAL, *HYPERPARAMETERS]:
        assert f"--{name}:" in text or f"--[no]{name}:" in text
    body = text.split("\nbody:\n")[1].split("\noutput:\n")[0]
    assert (
        "--num_heads: Number of attention heads. Belongs to --body=transformer|hybrid|shortformer|transformer_xl."
        in " ".join(body.split())
    )
    assert "--tail_dropout" not in body and "--momentum" not in body


COMMANDS = {  # of a program: bad arguments, and what it prints of them to stderr and before that to stdout
    "analyze": (["PATH/missing", "--output_dir=PATH/out"], "PATH/missing holds no run", ""),
    "plot": (["PATH/missing"], "`PATH/missing` is not a folder", ""),
    "prepare": (["--source=PATH", "--data_dir=PATH/data"], "PATH/train.txt is missing", "Reading PATH\n"),
    "score": (["--run_dir=PATH/nothing"], "PATH/nothing holds no run", ""),
}


@pytest.mark.parametrize("program", COMMANDS)
def test_bad_input_is_told_of_in_one_line(program, tmp_path, forks):
    arguments, error, output = COMMANDS[program]
    done = run("-m", f"trainers.{program}", *(one.replace("PATH", str(tmp_path)) for one in arguments))
    assert done.returncode == 1 and done.stdout == output.replace("PATH", str(tmp_path))
    assert done.stderr.startswith(f"{program}: {error.replace('PATH', str(tmp_path))}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("flag, name", [("--flagfile=none.flags", "none.flags"), ("--no_such_flag=1", "no_such_flag")])
def test_bad_flags_are_told_of_in_one_line_without_keras(flag, name):
    done = run("-c", "from trainers.support import command_line; command_line.run(print, lambda: None)", flag)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and name in done.stderr


@pytest.mark.parametrize(
    "configured, installed, expected",
    [
        (None, {"tensorflow", "jax", "torch"}, "tensorflow"),
        (None, {"torch", "jax"}, "jax"),
        ("torch", {"jax", "torch"}, "torch"),
        ("tensorflow", {"torch"}, "torch"),  # what Keras writes by itself
        ("jax", set(), None),
    ],
)
def test_an_installed_backend_is_chosen(tmp_path, monkeypatch, configured, installed, expected):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(trainers.importlib.util, "find_spec", lambda name: name if name in installed else None)
    if configured:
        (tmp_path / "keras.json").write_text(json.dumps({"backend": configured}))
    assert trainers.installed_backend() == expected
    monkeypatch.setenv("KERAS_BACKEND", "openvino")
    assert trainers.installed_backend() == "openvino"


def test_without_any_backend_a_program_says_so_in_one_line(monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND")
    done = run("-c", "import importlib.util; importlib.util.find_spec = lambda name: None; import trainers")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "pip install" in done.stderr


@pytest.mark.parametrize("chosen, expected", [({}, "1"), ({"TF_ENABLE_ONEDNN_OPTS": "0"}, "0")])
def test_tensorflow_gets_its_fast_kernels_unless_the_user_chooses(monkeypatch, chosen, expected):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS")
    program = "import os, sys, trainers; print(os.environ['TF_ENABLE_ONEDNN_OPTS'], 'tensorflow' in sys.modules)"
    done = run("-c", program, **chosen)
    assert done.stdout.split() == [expected, "False"]  # TensorFlow reads the variable when it is imported


@pytest.mark.skipif(sys.platform != "linux", reason="The options belong to glibc.")
@pytest.mark.parametrize("chosen, kept", [({}, True), ({"MALLOC_ARENA_MAX": "2"}, False)])
def test_programs_use_freed_memory_again_unless_the_user_chooses(monkeypatch, chosen, kept):
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    program = """import resource
from trainers.support import command_line

def main():
    faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = b"x" * 2**26
    del block
    before = faults()
    block = b"x" * 2**26
    print(faults() - before)

command_line.run(main, lambda: None)"""
    done = run("-c", program, **chosen)
    assert (int(done.stdout) < 1000) == kept  # the block has 16,384 pages


def test_programs_take_denormal_numbers_for_zero_in_all_threads():
    program = """import torch
from trainers.support import command_line

def main():
    torch.set_num_threads(2)
    print(torch.count_nonzero(torch.full((2**20,), 1e-20) * torch.full((2**20,), 1e-20)).item())

command_line.run(main, lambda: None)"""
    assert run("-c", program).stdout.split() == ["0"]


@pytest.mark.parametrize("terminal", [True, False])
def test_an_interruption_is_told_of_on_a_line_of_its_own(monkeypatch, capsys, terminal):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["trainers/score.py"])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    with pytest.raises(SystemExit) as ended:
        command_line.in_one_line(interrupt)
    assert ended.value.code == 130
    assert capsys.readouterr().err == ("\n" if terminal else "") + "score: interrupted.\n"
