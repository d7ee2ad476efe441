"""A recipe that is tried: for a few updates, or on a vocabulary that its cutoffs do not fit."""

import pytest

from trainers.experiments import summary
from trainers.experiments.experiment import Experiment

pytestmark = pytest.mark.once

TINY = ["--dim=16", "--num_heads=2", "--ffn_dim=32", "--num_blocks=1", "--length=8", "--batch_size=4"]


def test_a_trial_may_end_in_the_warm_up():
    """The first updates of the recipe, whose rates do not change."""
    whole, trial = ([f"--updates={updates}", "--warmup=10", "--period=9"] for updates in (100, 6))
    rates = [Experiment.of_arguments(arguments).schedule() for arguments in (whole, trial)]
    assert [rates[1](update) for update in range(6)] == [rates[0](update) for update in range(6)]
    trial, longer = (Experiment.of_arguments([*trial, f"--updates={updates}"]) for updates in (6, 100))
    assert (trial.is_trial, trial.evaluate_every, longer.is_trial, longer.evaluate_every) == (True, 6, False, 100)
    assert not longer.lengthens(trial)


@pytest.mark.parametrize("given, expected", [("auto", [2, 7]), ("20,4000", [2, 7]), ("40", [2, 7]), ("5,39", [5, 39])])
def test_cutoffs_that_do_not_fit_are_the_best_ones(monkeypatch, given, expected):
    vocabulary, received = summary.stand_in(40), []

    def best(counts, dim, **kwargs):
        received.append((len(counts), dim, kwargs))
        return 2, 7

    monkeypatch.setattr("trainers.experiments.experiment.best_cutoffs", best)
    chosen = Experiment.of_arguments([*TINY, f"--cutoffs={given}", "--embedding_dim=32"])
    assert chosen.fitted(vocabulary).settings == {**chosen.settings, "cutoffs": expected}
    assert (chosen.fitted(vocabulary) is chosen) == (given == "5,39") == (not received)
    assert all(each == (40, 16, {"input_dim": 32, "factor": 4}) for each in received)
    assert f"--cutoffs={','.join(map(str, expected))}\n" in chosen.fitted(vocabulary).flags_text()


def test_a_model_of_the_best_cutoffs():
    chosen = Experiment.of_arguments([*TINY, "--cutoffs=auto", "--input=word"])
    fitted = chosen.fitted(summary.stand_in(40))
    assert chosen.model(summary.stand_in(40)).word_output.cutoffs == tuple(fitted.settings["cutoffs"])
    assert Experiment.of_arguments(["--cutoffs=auto"]).flags_text().count("--cutoffs=auto\n") == 1
