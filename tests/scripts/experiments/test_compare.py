import json
import math
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from keras_adaptive.data import prepare
from scripts.experiments import compare, plot_comparison, systems
from scripts.experiments.compare import TRIAL_UPDATES
from tests.support.programs import call, parsed
from tests.support.refusals import refused
from tests.support.text import write_splits
from trainers import train
from trainers.experiments import checks
from trainers.experiments.experiment import Experiment

pytestmark = [pytest.mark.once, pytest.mark.processes]

FLAGFILES = {
    "common": "dim=32 num_blocks=1 num_heads=2 ffn_dim=16 length=8 batch_size=4 updates=4 evaluate_every=2",
    "adp_t": "input=adaptive output=adaptive tie_words cutoffs=8,16",
    "bpe_t": "input=word output=softmax tie_words",
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    lines = [" ".join(f"w{(i * j) % 23}" for j in range(8)) + "\n" for i in range(40)]
    texts = {"valid": "".join(lines[:9]), "test": "".join(lines[:11])}
    folder = write_splits(tmp_path_factory.mktemp("text"), "".join(lines), **texts)
    prepare(folder, folder / "words", min_count=1)
    prepare(folder, folder / "pieces", min_count=1, subwords=8)
    for name, flags in FLAGFILES.items():
        (folder / f"{name}.flags").write_text("# A system\n" + "".join(f"--{flag}\n" for flag in flags.split()))
    return folder


def arguments(text, *names):
    flagfiles = ",".join(f"{text}/{name}.flags" for name in names)
    return [f"--data_dir={text}/words", f"--common={text}/common.flags", f"--flagfiles={flagfiles}"]


def test_systems_are_trained_and_compared_per_word(text, monkeypatch, forks):
    """Each in a process of its own; a later command trains only the system that is missing."""
    monkeypatch.chdir(text)
    output = f"--output_dir={text}/runs"
    call(compare, *arguments(text, "adp_t"), output)
    files = [path for path in (text / "runs/adp_t_1").glob("*.*") if path.suffix != ".jsonl"]  # the log is opened again
    begun = {path: path.read_bytes() for path in files}
    assert {path.name for path in begun} >= {"best.keras", "last.keras", "losses_valid_8_context_0.npz"}
    call(compare, *arguments(text, "adp_t", "bpe_t"), f"--subword_dir={text}/pieces", output)
    assert {path.name for path in begun if path.read_bytes() != begun[path]} == set()
    written = json.loads((text / "runs/comparison.json").read_text())
    assert "commit" in written["machine"] and written["settings"]["seeds"] == ["1"]
    table = written["systems"]
    runs = {run["name"]: run for run in json.loads((text / "runs/analysis.json").read_text())["runs"]}
    for name in ("adp_t", "bpe_t"):
        assert table[name]["seeds"] == 1
        value = pytest.approx(runs[f"{name}_1"]["perplexity"]["test"])
        assert table[name]["test"] == {"mean": value, "std": None, "runs": [value]}
    assert runs["bpe_t_1"]["words"] == runs["adp_t_1"]["words"]
    assert runs["bpe_t_1"]["settings"]["input"] == "word"


@pytest.fixture
def programs(monkeypatch):
    """Stands in for the processes: the list of their arguments, without programs; updates take half a second."""
    calls = []

    def fake(_, program, *arguments):
        flags = dict(one.removeprefix("--").partition("=")[::2] for one in arguments)
        calls.append(flags)
        if program == "trainers.train":
            run_dir = Path(flags["run_dir"])
            run_dir.mkdir(parents=True)
            (run_dir / "flags.txt").write_text(f"--updates={flags.get('updates', 4)}\n")
            records = [{"update": update, "loss": 1.0, "seconds": 7 + update / 2} for update in range(TRIAL_UPDATES)]
            (run_dir / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    monkeypatch.setattr(compare, "call", fake)
    return calls


def trainings(text, output, programs, *given):
    """Returns the flags of every training that a comparison starts, and begins it again where it was stopped."""
    before = len(programs)
    try:
        call(compare, *arguments(text, "adp_t"), f"--output_dir={output}", *given)
    except FileNotFoundError as error:  # nothing was analyzed
        assert error.filename.endswith("analysis.json")
    return programs[before:-1]


def test_minutes_become_updates_by_a_trial_and_a_begun_run_keeps_its_number(text, tmp_path, programs, monkeypatch):
    trial, training = trainings(text, tmp_path, programs, "--minutes=0.5", "--validations=4")
    assert (trial["run_dir"], trial["updates"]) == (f"{tmp_path}/trial_adp_t", str(TRIAL_UPDATES))
    assert (training["run_dir"], training["updates"]) == (f"{tmp_path}/adp_t_1", "60")  # 30 s at 0.5 s
    assert trial["warmup"] == "0" and "warmup" not in training  # a warm-up may be longer than the trial
    assert training["evaluate_every"] == "15" and training["data_dir"] == f"{text}/words"
    (tmp_path / "adp_t_1" / "flags.txt").write_text("--updates=48\n")
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    (training,) = trainings(text, tmp_path, programs, "--minutes=0.5", "--validations=4")
    assert (training["updates"], training["evaluate_every"]) == ("48", "12")


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("--schedule=step_decay\n--decay_at=2400", {"decay_at": "", "evaluate_every": str(TRIAL_UPDATES)}),
        ("--optimizer=averaged_sgd", {"average_after": "1", "evaluate_every": str(TRIAL_UPDATES // 2)}),
    ],
)
def test_a_trial_needs_nothing_beyond_its_end(text, tmp_path, programs, flags, expected):
    (tmp_path / "late.flags").write_text(f"{flags}\n")
    given = [*arguments(text, "adp_t")[:2], f"--flagfiles={tmp_path}/late.flags", "--minutes=0.5"]
    with pytest.raises(FileNotFoundError):  # nothing was analyzed
        call(compare, *given, f"--output_dir={tmp_path}/runs")
    trial, training = programs[:2]
    assert expected.items() <= trial.items() and not {"decay_at", "average_after"} & training.keys()
    with parsed(train, *(f"--{name}={value}" for name, value in trial.items() if name != "notensorboard")):
        checks.check_flags(Experiment.of_flags())


def test_the_flags_of_the_system_say_how_long_it_trains(text, tmp_path, programs):
    (training,) = trainings(text, tmp_path, programs)
    assert "updates" not in training and "evaluate_every" not in training
    with pytest.raises(ValueError, match="--updates must be a multiple of --validations. Received: --updates=5"):
        trainings(text, tmp_path, programs, "--updates=5")


def test_seeds_are_of_all_systems_or_of_one(text):
    given = [*arguments(text, "adp_t", "bpe_t"), "--seeds=1,bpe_t:3,2,bpe_t:1"]
    with parsed(compare, *given):
        pairs = [("adp_t", "1"), ("adp_t", "2"), ("bpe_t", "1"), ("bpe_t", "2"), ("bpe_t", "3")]
        assert compare.pairs(["adp_t", "bpe_t"]) == pairs


def run(valid, test, bins):
    figures = {"perplexity": {"valid": valid, "test": test}, "perplexity_of_known": {"valid": 2.0, "test": 3.0}}
    validations = [{"update": 10 * place, "loss": math.log(valid / place)} for place in range(1, int(valid) + 1)]
    return {**figures, "seconds": 7, "parameters": 5, "by_frequency": bins, "validations": validations}


def approximately(mean, std, runs):
    return {"mean": pytest.approx(mean), "std": pytest.approx(std), "runs": pytest.approx(runs)}


def test_figures_are_means_over_seeds_and_rare_words_are_weighted(capsys):
    bins = [
        {"low": 1, "high": 10, "nll": 9.0, "tokens": 3},
        {"low": 0, "high": 1, "nll": 5.0, "tokens": 1},
        {"low": 10, "high": 100, "nll": 1.0, "tokens": 50},
        {"low": 100, "high": None, "nll": 1, "tokens": 9},
    ]
    runs = {"a_1": run(3.0, 4.0, bins), "a_2": run(5.0, 4.5, bins), "b_1": run(1.0, 9.0, bins)}
    analysis = {"runs": [{"name": name, **figures} for name, figures in runs.items()]}
    table = compare.summarize(analysis, {("a", "1"): "a_1", ("a", "2"): "a_2", ("b", "1"): "b_1"})
    assert list(table) == ["b", "a"]  # the best first
    assert table["a"] == {
        "seeds": 2,
        "parameters": 5,
        "valid": {"mean": 4.0, "std": pytest.approx(math.sqrt(2)), "runs": [3.0, 5.0]},
        "test": {"mean": 4.25, "std": pytest.approx(math.sqrt(0.125)), "runs": [4.0, 4.5]},
        "known": {"mean": 3.0, "std": 0.0, "runs": [3.0, 3.0]},
        "seconds": {"mean": 7, "std": 0.0, "runs": [7, 7]},
        "rare": {"mean": 8.0, "std": 0.0, "runs": [8.0, 8.0]},
        "validations": {10 * k: approximately(4 / k, 2**0.5 / k, [3 / k, 5 / k]) for k in (1, 2, 3)},
        "by_frequency": [
            {"low": part["low"], "high": part["high"], "nll": approximately(part["nll"], 0, 2 * [part["nll"]])}
            for part in bins
        ],
    }
    compare.print_table(table)
    header, best, other = capsys.readouterr().out.splitlines()[1:]
    assert header.split() == ["seeds", "parameters", "valid", "test", "known", "seconds", "rare"]
    assert best.split() == ["b", "1", "5", "1.00", "9.00", "3.00", "7", "8.00"]
    assert other.split() == ["a", "2", "5", "4.00", "±1.41", "4.25", "±0.35", "3.00", "±0.00", "7", "8.00"]

    compare.print_validations(table)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["update", "b", "a"], ["10", "1.00", "4.00"], ["20", "2.00"], ["30", "1.33"]]
    compare.print_validations({"b": table["b"]})
    assert capsys.readouterr().out == ""  # the table has the last one


def test_pictures_show_all_seeds(tmp_path):
    """Systems of words and of sub-words may have different bins."""
    of_bins = [{"low": 1, "high": 10, "nll": 9.0, "tokens": 3}, {"low": 10, "high": None, "nll": 1.0, "tokens": 5}]
    runs = {"a_1": run(3.0, 4.0, of_bins), "a_2": run(5.0, 4.5, of_bins), "bpe_1": run(9.0, 9.0, of_bins[1:])}
    analysis = {"runs": [{"name": name, **figures} for name, figures in runs.items()]}
    table = compare.summarize(analysis, {("a", "1"): "a_1", ("a", "2"): "a_2", ("bpe", "1"): "bpe_1"})
    plot_comparison.draw_comparison(table, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"learning_curves.png", "losses_of_seeds.png"}

    figure = plot_comparison.plot_losses_by_frequency(table)
    a, bpe = figure.axes[0].lines
    assert list(a.get_ydata()) == [0, 0] and list(bpe.get_xdata()) == [1]
    plt.close(figure)


def test_a_pattern_stands_for_all_flagfiles_that_match(text):
    read = systems.read([f"{text}/[ab]*_t.flags"], "words", "pieces")
    assert read == {
        "adp_t": [f"--flagfile={text}/adp_t.flags", "--data_dir=words"],
        "bpe_t": [f"--flagfile={text}/bpe_t.flags", "--data_dir=pieces"],
    }


@pytest.mark.parametrize(
    "names, given, message",
    [
        ([], [], "none of which is empty"),
        (["lstm"], [], "lstm.flags is missing"),
        (["bpe_t"], [], "bpe_t.flags is a system of sub-words: pass --subword_dir"),
        (["adp_t", "adp_t"], [], "Two are named adp_t: rename one"),
        (["adp_t"], ["--seeds=1,lstm:2"], "--seeds must name systems of adp_t. Received: --seeds of lstm"),
    ],
)
def test_bad_systems_and_seeds_are_refused_before_any_work(text, tmp_path, programs, names, given, message):
    refused(compare, *arguments(text, *names), f"--output_dir={tmp_path}/runs", *given, match=message)
    assert programs == [] and not (tmp_path / "runs").exists()


def test_a_program_that_fails_ends_the_comparison():
    match = "-c raise SystemExit.1. failed, see above. The same command resumes from"
    refused(compare.call, "-c", "raise SystemExit(1)", match=match)
