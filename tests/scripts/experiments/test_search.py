import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from scripts.experiments import plot_search, search, shared_study
from tests.support.programs import call, parsed
from tests.support.refusals import refused
from tests.support.text import prepared, write_zipf
from trainers import train

pytestmark = pytest.mark.once

SPACE = ["weight_dropout:0:0.9", "bptt:5:20", "dim:8:16"]
MODEL = ["--input=word", "--output=softmax", "--use_bias", "--body=qrnn", "--num_layers=1", "--units=8", "--dim=8"]
TRAINING = ["--batching=streams", "--bptt=10", "--batch_size=2", "--updates=4", "--evaluate_every=2"]
FLAGS = [*MODEL, *TRAINING, "--optimizer=adam", "--schedule=step_decay", "--decay_at=2", "--max_rate=0.01"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return prepared(write_zipf(tmp_path_factory.mktemp("text"), words=30)).data_dir


@pytest.fixture
def forest(monkeypatch):
    """The module, imported with scikit-learn from where scripts/test.sh keeps it."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(sys.prefix) / "apart")])
    from scripts.experiments import forest

    return forest


@pytest.fixture
def command(corpus, tmp_path, monkeypatch, forest):
    """Returns a function that runs the program with more flags and small forests; `output` is its folder."""
    monkeypatch.setattr(forest, "TREES", 10)
    monkeypatch.setattr(forest, "RESAMPLED_TREES", 1)

    def run(*more):
        call(search, *FLAGS, f"--data_dir={corpus}", f"--space={','.join(SPACE)}", f"--output_dir={tmp_path}", *more)

    run.output = tmp_path
    return run


@pytest.fixture
def trained(monkeypatch):
    """Stands in for training: the list of the trials' flags; the perplexity is 10 and ten times the weight dropout."""
    calls, names = [], [text.split(":")[0] for text in SPACE]

    def fake():
        values = {name: flags.FLAGS[name].value for name in (*names, "run_dir", "updates", "decay_at")}
        calls.append(values)
        folder = search.Path(values["run_dir"])
        (folder / "checkpoints").mkdir(parents=True)
        losses = [9.0, math.log(10 + 10 * values["weight_dropout"])]
        (folder / "log.jsonl").write_text("".join(f'{{"val_loss": {loss}}}\n' for loss in losses))

    monkeypatch.setattr(train, "main", fake)
    return calls


@pytest.fixture
def pictures(monkeypatch):
    """Stands in for the pictures: the list of the arguments of `draw_search`."""
    calls = []
    monkeypatch.setattr(plot_search, "draw_search", lambda *arguments: calls.append(arguments))
    return calls


def opened(folder, texts=SPACE, seed=1, **settings):
    return shared_study.SharedStudy(folder, shared_study.read_space(texts), seed, settings)


def test_a_trial_is_drawn_from_its_number_and_the_seed():
    space = shared_study.read_space(["units:1:1000", "dropout:0.1:0.2"])
    drawn = [shared_study.draw(space, 1, number) for number in range(50)]
    assert [shared_study.draw(space, 1, number) for number in (49, 7)] == [drawn[49], drawn[7]]
    assert shared_study.draw(space, 2, 7) != drawn[7]
    units, rates = ([one[name] for one in drawn] for name in ("units", "dropout"))
    assert all(isinstance(one, int) and 1 <= one <= 1000 for one in units) and len(set(units)) > 40
    assert 0.1 <= min(rates) < 0.12 and 0.18 < max(rates) <= 0.2


def test_a_space_that_makes_no_sense():
    for text in ("bptt", "bptt:5", "bptt:5:x", "bptt:5.5:9", "bptt:9:5", "width:1:2", "cutoffs:1:2"):
        with pytest.raises(ValueError, match=f"--space must be .*NAME:LOW:HIGH.*bptt.*Received: --space={text}."):
            shared_study.read_space(["dim:8:16", text])
    for texts in ([], ["dim:8:16", "dim:8:32"]):
        refused(shared_study.read_space, texts, match="--space must contain at least one")


def test_processes_share_the_trials_and_one_that_was_killed_is_trained_again(tmp_path):
    """Two studies of one folder stand in for two processes, since neither holds the other's locks."""
    first, second = opened(tmp_path), opened(tmp_path)
    with first.claimed(3) as one, second.claimed(3) as other:
        assert (one, other) == (0, 1)
        second.tell(other, math.inf, commit="b")
        assert second.results(3)[1] == 2
    with second.claimed(3) as again, first.claimed(3) as third:
        assert (again, third) == (one, 2)
        with opened(tmp_path).claimed(3) as none:
            assert none is None
        first.tell(third, 3.0, commit="a")
        second.tell(again, 2.0, commit="b")
    with first.claimed(3) as none:
        assert none is None
    results, missing = opened(tmp_path).results(3)
    assert missing == 0
    found = [(one["trial"], one["perplexity"], one["commit"]) for one in results]
    assert found == [(0, 2.0, "b"), (1, math.inf, "b"), (2, 3.0, "a")]
    drawn = [shared_study.draw(first.space, 1, number) for number in range(3)]
    assert [one["hyper_parameters"] for one in results] == drawn


def test_a_study_keeps_the_settings_that_it_began_with(tmp_path):
    opened(tmp_path, **{"--updates": "4", "--seed": "1"})
    other = {"--updates": "5", "--seed": "1", "--dtype": "x"}
    match = r"other settings: --dtype=x \(was None\), --updates=5 \(was 4\)\. Pass"
    refused(opened, tmp_path, **other, match=match)


def test_a_damaged_study_is_named(tmp_path):
    (tmp_path / "study.json").write_bytes(b"no JSON" * 1000)
    refused(opened, tmp_path, match="study.json is not a file of a search, or is damaged .*another --output_dir")


def test_the_forest_finds_the_order_of_a_known_function(monkeypatch, forest):
    points = np.random.default_rng(1).uniform(size=(60, 3))
    values = 4 * (points[:, 2] - 0.5) ** 2 + 0.5 * points[:, 0]
    monkeypatch.setattr(forest, "TREES", 60)
    monkeypatch.setattr(forest, "RESAMPLED_TREES", 10)
    means, lows, highs, r2 = forest.importances(points, values, resamples=5)
    assert list(np.argsort(means)) == [1, 0, 2] and means.sum() == pytest.approx(1)
    assert (lows <= highs).all() and lows[2] > highs[0] and 0.5 < r2 < 1
    _, _, _, of_noise = forest.importances(points, np.random.default_rng(2).normal(size=60), resamples=1)
    assert of_noise < 0.2


def test_a_trial_that_failed_is_among_the_worst():
    assert search.bound([3.0, math.inf, 7.0, 30.0, 29.0], words=30) == [3.0, 29.0, 7.0, 29.0, 29.0]
    refused(search.bound, [math.inf, 30.0], words=30, match="Every trial is as bad as a uniform guess")


def test_the_means_of_cells():
    places = [(0.0, 5, 1.0), (0.1, 9, 3.0), (0.9, 9, 8.0), (0.4, 21, 2.0)]
    trials = [{"hyper_parameters": {"rate": a, "bptt": b}, "bounded": value} for a, b, value in places]
    found = {"trials": trials, "space": {"rate": [0.0, 0.9], "bptt": [5, 21]}}
    means, counts = plot_search.cell_means(found, "rate", "bptt", cells=2)
    np.testing.assert_array_equal(counts, [[2, 1], [1, 0]])
    np.testing.assert_array_equal(means, [[2.0, 2.0], [8.0, np.nan]])


def test_trials_train_on_as_many_tokens():
    base = {"batch_size": 4, "bptt": 60, "updates": 300, "evaluate_every": 100, "decay_at": [150, 225], "warmup": 0}
    half = {"updates": 150, "evaluate_every": 50, "decay_at": [75, 112], "warmup": 0}
    assert search.lengths(base, {**base, "bptt": 120}) == half
    assert search.lengths(base, {**base, "batch_size": 1, "warmup": 7})["warmup"] == 28
    assert search.lengths(base, {**base, "batch_size": 1})["updates"] == 1200
    assert search.lengths(base, {**base, "bptt": 60000})["updates"] == 3


def test_a_search_resumes_and_grows(command, trained, monkeypatch, capsys):
    fake, stops = train.main, [True, False]
    long = ["--updates=400", "--evaluate_every=200", "--decay_at=200"]

    def stopped():
        if len(trained) == 2 and stops.pop(0):
            raise SystemExit(143)
        if flags.FLAGS.run_dir.endswith("trial_1"):
            trained.append(None)
            raise FloatingPointError("It has diverged.")
        fake()

    monkeypatch.setattr(train, "main", stopped)
    with pytest.raises(SystemExit):
        command("--trials=4", *long)
    assert len(trained) == 2 and not (command.output / "search.json").exists()
    command("--trials=4", *long)
    command("--trials=6", *long)
    assert len(trained) == 6
    found = json.loads((command.output / "search.json").read_text())
    assert [one["trial"] for one in found["trials"]] == list(range(6)) and found["failed"] == 1
    assert found["trials"][1]["perplexity"] is None
    learned = [one for one in found["trials"] if one["perplexity"]]
    assert found["trials"][1]["bounded"] == max(one["perplexity"] for one in learned)
    for one, values in zip(learned, filter(None, trained)):
        hyper_parameters = one["hyper_parameters"]
        assert hyper_parameters.items() <= values.items()
        assert one["perplexity"] == pytest.approx(10 + 10 * hyper_parameters["weight_dropout"])
        every = round(200 * 10 / hyper_parameters["bptt"])
        assert (values["updates"], values["decay_at"]) == (2 * every, [every])
        assert not search.Path(values["run_dir"], "checkpoints").exists()
    assert list(found["importances"])[0] == "weight_dropout" and found["space"]["bptt"] == [5, 20]
    assert {path.name for path in command.output.glob("*.png")} == {"importances.png", "heat_maps.png"}
    assert "6 trials; 1 are as bad as a uniform guess" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"contains a search with other settings: --max_rate=0.02 \(was 0.01\)"):
        command("--trials=6", *long, "--max_rate=0.02")


def test_the_results_are_left_to_the_command_that_trains_the_last_trial(command, corpus, trained, pictures, capsys):
    command("--trials=2")
    capsys.readouterr()
    with parsed(search, *FLAGS, f"--data_dir={corpus}", f"--space={','.join(SPACE)}"):
        experiment = search.Experiment.of_flags()
        shared = search.settings(experiment, train.open_corpus(experiment))
    with opened(command.output, **shared).claimed(3) as trial:
        command("--trials=3")
    assert trial == 2 and len(trained) == 2
    assert "Other commands train the last 1 trials" in capsys.readouterr().out
    command("--trials=3")
    assert len(trained) == 3


def test_two_trials_are_trained(command, pictures):
    command("--trials=2")
    found = json.loads((command.output / "search.json").read_text())
    assert all(5 < one["perplexity"] < 40 and "commit" in one for one in found["trials"])
    assert len(list(command.output.glob("trial_?/best.keras"))) == 2 and len(pictures) == 1


NOT_ACCEPTED = "--space contains a value that a flag does not accept: .*"


@pytest.mark.parametrize(
    "given, message",
    [
        ("--space=num_heads:1:2", "--num_heads belongs to --body=transformer"),
        ("--space=bptt:2:9", f"{NOT_ACCEPTED}--bptt=2"),
        ("--space=weight_dropout:nan:0.5", f"{NOT_ACCEPTED}--weight_dropout=nan"),
        ("--space=weight_dropout:0:1", f"{NOT_ACCEPTED}--weight_dropout=1"),
        ("--run_dir=x", "--run_dir and --summary belong to trainers.train"),
        ("--updates=3", "--updates must be a multiple of --evaluate_every"),
    ],
)
def test_bad_flags_are_refused_before_any_work(command, trained, given, message):
    refused(command, given, match=message)
    assert trained == [] and not list(command.output.iterdir())


def test_a_missing_package_is_named(command, monkeypatch):
    monkeypatch.delitem(sys.modules, "scripts.experiments.forest")
    monkeypatch.delattr(sys.modules["scripts.experiments"], "forest")
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    refused(command, error=ModuleNotFoundError, match=r'needs scikit-learn: pip install "keras_adaptive\[search\]"')
