"""Trains with random hyper-parameters, and ranks them by a random forest (Merity et al. 2018, section 5.2).

    python -m trainers.prepare --source=FOLDER --data_dir=data/mine
    python -m scripts.experiments.search --flagfile=configs/books_search/awd_qrnn.flags --data_dir=data/mine \\
        --trials=60 --output_dir=runs/search

The program takes the flags of trainers.train. --space defines the hyper-parameters that vary, and their ranges. The
default is the space of the paper, reduced to small models; dropout rates end at 0.9, because a rate of 1 drops
everything. All trials train on the same number of tokens, which the flags define: if --bptt is twice the --bptt of the
flags, --updates, --evaluate_every, --decay_at, --warmup and --period are halved.

The same command resumes after it was stopped, and trains only missing trials; a larger --trials adds trials. Commands
that run at the same time share the trials: each is one process, which trains one trial at a time. If a process is
killed, the next process that looks for a trial resumes its trial.

--output_dir contains the run folder trial_N of trial N, and its result, trial_N.json. The command that trains the last
trial writes search.json, importances.png and heat_maps.png. A trial that has diverged, or that is no better than a
uniform guess, is in search.json too; the forest and the heat maps assign it the highest perplexity of the others.
"""

import contextlib
import math
import shutil
from pathlib import Path

import keras
from absl import flags

from keras_adaptive.files import write_json
from keras_adaptive.metrics import perplexity
from scripts.benchmarks import common
from scripts.experiments import shared_study
from trainers import train
from trainers.experiments import checks
from trainers.experiments.experiment import NOT_COMPARED, Experiment, row_length
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line

FLAGS = flags.FLAGS
SPACE = [
    *(f"{name}_dropout:0:0.9" for name in ("weight", "hidden", "vector", "embedding", "output")),
    *("bptt:30:120", "num_layers:1:5", "units:50:250", "dim:50:250"),
]
IN_UPDATES = ("warmup", "period", "decay_at")  # settings whose unit is updates


def define_flags():
    train.define_flags()
    FLAGS.set_default("tensorboard", False)
    flags.DEFINE_list("space", SPACE, "Hyper-parameters that vary: NAME:LOW:HIGH, separated by commas.")
    flags.DEFINE_integer("trials", 60, "Number of trials.", lower_bound=2)
    command_line.define_path("output_dir", "runs/search", "Folder of the study, the runs, the results and pictures.")
    command_line.define_path("results", None, "File to write instead of search.json. It needs a clean working tree.")


def main():
    try:
        from scripts.experiments import forest, plot_search  # fails before the work begins
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] != "sklearn":
            raise
        raise ModuleNotFoundError('The search needs scikit-learn: pip install "keras_adaptive[search]".') from None
    common.check_results()
    space = shared_study.read_space(FLAGS.space)
    base = check(space)
    corpus = train.open_corpus(base)
    study = shared_study.SharedStudy(FLAGS.output_dir, space, base.settings["seed"], settings(base, corpus))
    commit = common.machine()["commit"]
    while train_trial(study, base, commit):
        pass
    with study.locked():
        trials, missing = study.results(FLAGS.trials)
        if missing:
            return print(f"Other commands train the last {missing} trials and write the results.", flush=True)
        result = {"machine": common.machine(), "settings": settings(base, corpus)}
        result |= analyze(forest.importances, trials, space, len(corpus.vocabulary))
        print_results(result)
        path = Path(FLAGS.results or f"{FLAGS.output_dir}/search.json")
        write_json(path, result)
        plot_search.draw_search(result, path.parent)
        print(f"Written to {path}, with importances.png and heat_maps.png", flush=True)


def check(space):
    """Returns the experiment of the flags. Raises a ValueError if the bounds of the space cannot be trained."""
    if FLAGS.run_dir or FLAGS.summary:
        raise ValueError("--run_dir and --summary belong to trainers.train: omit them, and pass --output_dir.")
    base = Experiment.of_flags()
    for end in (0, 1):
        with given(run_dir=FLAGS.output_dir, **{name: bounds[end] for name, bounds in space.items()}):
            checks.check_flags(Experiment.of_flags())
    return base


@contextlib.contextmanager
def given(**values):
    """Sets flags to these values inside the context, as if they were on the command line."""
    before = {name: (FLAGS[name].value, FLAGS[name].present) for name in values}
    try:
        for name, value in values.items():
            FLAGS[name].parse(value)
        yield
    except flags.Error as error:
        raise ValueError(f"--space contains a value that a flag does not accept: {error}.") from None
    finally:
        for name, (value, present) in before.items():
            FLAGS[name].value, FLAGS[name].present = value, present


def settings(base, corpus):
    """Returns the settings that all trials of a study share: the flags, the space and the text."""
    lines = (line.split("=", 1) for line in base.flags_text().splitlines())
    shared = {name: value for name, value in lines if name.removeprefix("--") not in NOT_COMPARED}
    texts = {f"the {split} text": corpus.metadata["splits"][split]["sha256"] for split in ("train", "valid")}
    return {**shared, "--space": ",".join(FLAGS.space), **texts}


def train_trial(study, base, commit):
    """Trains or resumes a trial, and stores its result. Returns whether a trial was left."""
    with study.claimed(FLAGS.trials) as number:
        if number is None:
            return False
        run, params = RunFolder(Path(FLAGS.output_dir, f"trial_{number}")), study.params(number)
        listed = " ".join(f"--{name}={value:.4g}" for name, value in params.items())
        print(f"== trial {number} of {FLAGS.trials}: {listed}", flush=True)
        with given(run_dir=str(run.path), **params):
            with given(**lengths(base.settings, Experiment.of_flags().settings)):
                study.tell(number, best_perplexity(run), commit=commit)
        shutil.rmtree(run.checkpoints, ignore_errors=True)  # a trial with a result is never resumed
    return True


def lengths(base, trial):
    """Returns the settings with which a trial trains on as many tokens as the experiment of the flags, `base`."""
    ratio = base["batch_size"] * row_length(base) / (trial["batch_size"] * row_length(trial))
    every = max(round(ratio * base["evaluate_every"]), 1)
    result = {"evaluate_every": every, "updates": base["updates"] // base["evaluate_every"] * every}
    for name in IN_UPDATES:
        if name in trial:
            result[name] = scaled(trial[name], ratio)
    return result


def scaled(value, ratio):
    """Returns a number of updates, or a list of them, multiplied by a ratio and rounded."""
    return [scaled(item, ratio) for item in value] if isinstance(value, list) else round(ratio * value)


def best_perplexity(run):
    """Trains and returns the best validation perplexity, or infinity if training diverged."""
    keras.backend.clear_session()
    try:
        train.main()
    except FloatingPointError as error:
        print(error, flush=True)
        return math.inf
    return perplexity(train.best_loss(run.path / "log.jsonl"))


def analyze(importances, trials, space, words):
    """Analyzes the trials of a search in a space, by `forest.importances`, and returns a dict for JSON."""
    perplexities = [trial["perplexity"] for trial in trials]
    bounded = bound(perplexities, words)
    points = [[trial["hyper_parameters"][name] for name in space] for trial in trials]
    shares, lows, highs, r2 = importances(points, bounded)
    rows = {name: {"importance": shares[i], "low": lows[i], "high": highs[i]} for i, name in enumerate(space)}
    return {
        "space": {name: list(bounds) for name, bounds in space.items()},
        "words": words,
        "failed": sum(value >= words for value in perplexities),
        "r2": r2,
        "importances": dict(sorted(rows.items(), key=lambda row: -row[1]["importance"])),
        "trials": [{**trial, "bounded": value} for trial, value in zip(trials, bounded)],
    }


def bound(perplexities, words):
    """Returns the perplexities on which the forest is trained.

    A trial has failed if its perplexity is at least the number of words, the perplexity of a uniform guess. It is
    assigned the highest perplexity of the other trials. It then remains among the worst trials, but does not dominate
    the squared error.
    """
    learned = [value for value in perplexities if value < words]
    if not learned:
        raise ValueError("Every trial is as bad as a uniform guess: pass a lower --max_rate or more --updates.")
    return [value if value < words else max(learned) for value in perplexities]


def print_results(result):
    best = min(result["trials"], key=lambda trial: trial["bounded"])
    print(f"\n{len(result['trials'])} trials; {result['failed']} are as bad as a uniform guess.", end=" ")
    print(f"The best is trial {best['trial']}: valid perplexity {best['perplexity']:.2f}.")
    print(f"Out-of-bag R² of the forest: {result['r2']:.2f}. Importances, and 80 % of forests of resampled trials:\n")
    rows = result["importances"].items()
    common.print_table(
        ["", "importance", "low", "high"],
        [[name, *(f"{row[key]:.3f}" for key in ("importance", "low", "high"))] for name, row in rows],
    )


if __name__ == "__main__":
    command_line.run(main, define_flags)
