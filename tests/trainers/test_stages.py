"""Staged training: short blocks first, long ones later, as one run that stops and resumes anywhere."""

import pytest

from keras_adaptive.data import load_corpus
from keras_adaptive.models import read_language_model
from tests.support.programs import call
from tests.support.quickstart import SHRUNK
from tests.support.refusals import refused
from tests.support.runs import assert_same_runs, records, stopped
from trainers import train
from trainers.experiments.experiment import Experiment
from trainers.experiments.parts import stages_of
from trainers.experiments.run_folder import RunFolder

STAGES = [*SHRUNK, "--lengths=4:3,8"]

pytestmark = [pytest.mark.usefixtures("models_read_once"), pytest.mark.graph_optimizer]


def test_a_run_stopped_in_each_stage_and_between_them_ends_the_same(corpus, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    call(train, *STAGES, f"--data_dir={corpus}", f"--run_dir={whole}")
    for event in ("on_train_batch_end", "on_test_batch_begin", "on_train_batch_end"):
        with stopped(event, 0):
            call(train, *STAGES, f"--data_dir={corpus}", f"--run_dir={run}")
    assert records(run)[-1]["update"] == 4
    assert read_language_model(run / "best.keras").trained_length == 4  # what validation of the first stage wrote
    call(train, *STAGES, f"--data_dir={corpus}", f"--run_dir={run}")
    assert_same_runs(run, whole)
    for folder in (run, whole):
        assert read_language_model(folder / "last.keras").trained_length == 8
    assert RunFolder(run).flags()["length"] == "8" and RunFolder(run).length == 8


@pytest.mark.once
def test_stages_have_as_many_tokens_in_an_update(corpus):
    experiment = Experiment.of_arguments(["--batch_size=3", "--lengths=2:1,5:2,8"])
    tokens = load_corpus(corpus).tokens("train")
    batches = experiment.batches(tokens)
    shapes = [batches.batch(update)[0].shape for update in range(5)]
    assert shapes == [(12, 2), (4, 5), (4, 5), (3, 8), (3, 8)]
    assert len(experiment.batches(tokens, shuffle=False)) == len(batches)
    assert experiment.batches(tokens, shuffle=False).batch(0)[0].shape == (3, 8)


@pytest.mark.once
def test_the_last_stage_has_the_length_of_the_run():
    assert Experiment.of_arguments(["--lengths=64:10000,256"]).settings["length"] == 256
    assert Experiment.of_arguments(["--lengths=64:10000, 128:5 , 256"]).settings["length"] == 256
    refused(
        Experiment.of_arguments,
        ["--length=128", "--lengths=64:10000,256"],
        match="--length must be the last of --lengths, .* Received: --length=128 --lengths=64:10000,256",
    )
    refused(
        Experiment.of_arguments, ["--batching=streams", "--lengths=8:3,16"], match="--lengths belongs to --batching"
    )


@pytest.mark.once
@pytest.mark.parametrize(
    "lengths",
    [
        "64",
        "64:10",
        "64:10,",
        "64:10,64",
        "64:10,32",
        "64,128",
        "0:10,8",
        "8:0,16",
        "8:x,16",
        "8:3,16:4",
        ":",
        "8:-1,9",
        "8:1,1048577",
    ],
)
def test_lengths_that_are_no_stages(lengths):
    if lengths == "64":
        assert stages_of(lengths) == [(64, None)]
    else:
        refused(stages_of, lengths, match="LENGTH:UPDATES of every stage but the last.* Received: --lengths=")


@pytest.mark.once
def test_a_stop_in_the_last_validation_keeps_the_length_of_the_last_stage(corpus, tmp_path):
    arguments = [*STAGES, f"--data_dir={corpus}", f"--run_dir={tmp_path}/run"]
    for _ in ("the validation of the first stage", "the last one"):
        with stopped("on_test_batch_begin", 0):
            call(train, *arguments)
    assert records(tmp_path / "run")[-1]["update"] == 6
    call(train, *arguments)
    for name in ("best", "last"):
        assert read_language_model(tmp_path / "run" / f"{name}.keras").trained_length == 8


@pytest.mark.once
def test_a_last_stage_that_would_not_begin_is_refused(corpus, tmp_path):
    arguments = [*SHRUNK, "--lengths=4:6,8", f"--data_dir={corpus}", f"--run_dir={tmp_path}/run"]
    refused(train, *arguments, match="--updates must exceed the updates of all stages of --lengths but the last")


@pytest.mark.once
def test_a_stage_ends_with_a_validation(corpus, tmp_path):
    arguments = [*SHRUNK, "--lengths=4:2,8", f"--data_dir={corpus}", f"--run_dir={tmp_path}/run"]
    refused(train, *arguments, match="multiples of --evaluate_every. .*--evaluate_every=3, .* ends after 2 updates")
    assert not (tmp_path / "run").exists()
