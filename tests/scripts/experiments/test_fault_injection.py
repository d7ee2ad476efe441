import json
from pathlib import Path

import keras
import numpy as np
import pytest

from scripts.experiments import fault_injection
from tests.support.programs import parsed
from trainers.experiments.experiment import Experiment

pytestmark = [pytest.mark.once, pytest.mark.processes]


@pytest.fixture
def shrunk(monkeypatch):
    """Shrinks the recipe to two bands and no micro-batches, to compile less."""
    monkeypatch.setattr(fault_injection, "MODEL", fault_injection.MODEL.replace("--cutoffs=100,400", "--cutoffs=100"))
    monkeypatch.setattr(fault_injection, "TRAINING", fault_injection.TRAINING.replace("--micro_batches=2", ""))
    with parsed(fault_injection, "--updates=24", "--evaluate_every=12", "--save_every=2"):
        yield


def test_a_killed_training_ends_as_an_undisturbed_one(tmp_path, shrunk, capsys, forks):
    """Runs three real processes: a whole training, one that `kill -9` ends, and one that resumes."""
    corpus = fault_injection.prepare_text(tmp_path)
    rows, different = fault_injection.inject(corpus, tmp_path, keras.config.backend(), [5])
    assert different == []
    (row,) = rows
    assert row["after update"] >= 5 and 0 <= row["updates lost"] == row["after update"] - row["resumed from"] < 24
    assert str(row["after update"]) in capsys.readouterr().out


def test_a_log_is_read_only_when_it_has_grown(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(fault_injection, "last_update", lambda run_dir: read.append(run_dir) or len(read))
    training = object.__new__(fault_injection.Training)
    training.run_dir, training.size, training.begun, training.start = tmp_path, None, 0, 0
    assert not training.reached(2)  # there is no log
    for text, expected in (("a", False), ("a", False), ("ab", True)):
        (tmp_path / "log.jsonl").write_text(text)
        assert training.reached(2) == expected
    assert len(read) == 2


def test_the_recipe_of_streams_is_an_experiment():
    recipe = Path(fault_injection.__file__).with_name("streams.flags")
    chosen = Experiment.of_arguments([f"--flagfile={recipe}"])
    assert (chosen.parts["body"], chosen.parts["batching"]) == ("lstm", "streams")


def make_end(folder, loss=2.0, seconds=1.0, **arrays):
    (folder / "checkpoints").mkdir(parents=True)
    np.savez(folder / "checkpoints" / "update_0000000007.npz", state="{}", **arrays)
    (folder / "log.jsonl").write_text(json.dumps({"update": 7, "loss": loss, "seconds": seconds}) + '\n{"upd')
    return folder


def test_every_bit_is_compared(tmp_path):
    zero, one = np.zeros(2), np.ones(2)
    whole = make_end(tmp_path / "whole", a=zero, b=one)
    same = make_end(tmp_path / "same", a=zero, b=one, seconds=2.0)
    other = make_end(tmp_path / "other", a=-zero, b=one, loss=3.0)
    assert fault_injection.newest(whole)[0] == fault_injection.last_update(whole) == 7
    for folder in (whole, same, other):  # whose last line was being written
        (folder / "log.jsonl").write_text((folder / "log.jsonl").read_text().split("\n")[0] + "\n")
    assert fault_injection.differences(whole, same) == []
    assert fault_injection.differences(whole, other) == ["a", "log.jsonl"]
