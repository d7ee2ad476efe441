"""Trains with random hyper-parameters, and ranks these by a random forest (Merity et al. 2018, section 5.2).

    python -m trainers.prepare --source=FOLDER --data_dir=data/mine
    python -m scripts.experiments.search --flagfile=configs/books_search/awd_qrnn.flags --data_dir=data/mine \\
        --trials=60 --output_dir=runs/search

The program takes the flags of trainers.train. --space names the hyper-parameters that vary, and their ranges. The
default is the paper's space, cut to small models; dropout rates end at 0.9, since nothing is left at the paper's 1. All
trials train on as many tokens as the flags say: where --bptt is twice the --bptt of the flags, --updates,
--evaluate_every, --decay_at, --warmup and --period are half of them.

The same command resumes where it stopped and trains only what is missing; a higher --trials adds trials. Several
commands at once share the trials: each is one process, which trains one trial at a time. A trial whose process was
killed is resumed by the next process that looks for one.

--output_dir holds Optuna's study.db and the run folder trial_N of trial N. The command that trains the last trial
writes search.json, importances.png and heat_maps.png. A trial that has diverged, or is no better than a uniform guess,
is in search.json too; the forest and the heat maps give it the highest perplexity of the other trials.
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
from trainers import command_line, train
from trainers.experiment import NOT_COMPARED, Experiment, row_length
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS
SPACE = [
    *(f"{name}_dropout:0:0.9" for name in ("weight", "hidden", "vector", "embedding", "output")),
    *("bptt:30:120", "num_layers:1:5", "units:50:250", "dim:50:250"),
]
IN_UPDATES = ("warmup", "period", "decay_at")  # settings that are numbers of updates


def define_flags():
    train.define_flags()
    FLAGS.set_default("tensorboard", False)
    flags.DEFINE_list("space", SPACE, "Hyper-parameters that vary: NAME:LOW:HIGH, with commas between them.")
    flags.DEFINE_integer("trials", 60, "Number of trials.", lower_bound=2)
    flags.DEFINE_string("output_dir", "runs/search", "Folder of the study, of the runs, and of results and pictures.")
    flags.DEFINE_list("pairs", None, "Pairs to draw heat maps of, such as bptt:dim; by default of the most important.")
    flags.DEFINE_string("results", None, "File to write in place of search.json, from a working tree without changes.")


def main():
    shared_study, forest, plot_search = optional_modules()
    common.check_results()
    space = shared_study.read_space(FLAGS.space)
    pairs = read_pairs(space)
    base = check(space)
    corpus = train.open_corpus(base)
    study = shared_study.SharedStudy(FLAGS.output_dir, space, base.settings["seed"], settings(base, corpus))
    commit = common.machine()["commit"]
    while train_trial(study, base, commit):
        pass
    with study.locked():
        trials, missing = study.results()
        if missing:
            return print(f"Other commands train the last {missing} trials, and write the results.", flush=True)
        found = {"machine": common.machine(), "settings": settings(base, corpus)}
        found |= analyze(forest.importances, trials, space, len(corpus.vocabulary))
        print_results(found)
        path = Path(FLAGS.results or f"{FLAGS.output_dir}/search.json")
        write_json(path, found)
        plot_search.draw_search(found, path.parent, pairs)
        print(f"Written to {path}, beside importances.png and heat_maps.png", flush=True)


def optional_modules():
    """Returns the modules that need packages of the extra `search`, before any work that would need them later."""
    try:
        from scripts.experiments import forest, plot_search, shared_study
    except ModuleNotFoundError as error:
        package = error.name.partition(".")[0]
        if package not in ("optuna", "sklearn"):
            raise
        raise ModuleNotFoundError(
            f'The search needs Optuna and scikit-learn: pip install "keras_adaptive[search]". Missing: {package}.'
        ) from None
    return shared_study, forest, plot_search


def read_pairs(space):
    """Returns the pairs of --pairs, None if there is no such flag."""
    if FLAGS.pairs is None:
        return None
    pairs = [tuple(pair.split(":")) for pair in FLAGS.pairs]
    if wrong := [":".join(pair) for pair in pairs if len(pair) != 2 or not set(pair) <= set(space)]:
        raise ValueError(f"--pairs must be NAME:NAME of {', '.join(space)}. Received: {', '.join(wrong)}.")
    return pairs


def check(space):
    """Returns the experiment of the flags; raises a ValueError if the ends of the space cannot be trained."""
    if FLAGS.run_dir or FLAGS.summary:
        raise ValueError("--run_dir and --summary are of trainers.train: leave them out, and pass --output_dir.")
    base = Experiment.of_flags()
    for end in ("low", "high"):
        with given(run_dir=FLAGS.output_dir, **{name: getattr(one, end) for name, one in space.items()}):
            train.check(Experiment.of_flags())
    return base


@contextlib.contextmanager
def given(**values):
    """Gives flags these values while the context lasts, as if they were on the command line."""
    before = {name: (FLAGS[name].value, FLAGS[name].present) for name in values}
    try:
        for name, value in values.items():
            FLAGS[name].parse(value)
        yield
    except flags.Error as error:
        raise ValueError(f"--space has a value that a flag refuses: {error}.") from None
    finally:
        for name, (value, present) in before.items():
            FLAGS[name].value, FLAGS[name].present = value, present


def settings(base, corpus):
    """Returns what all trials of a study share: the flags, the space and the text."""
    lines = (line.split("=", 1) for line in base.flags_text().splitlines())
    shared = {name: value for name, value in lines if name.removeprefix("--") not in NOT_COMPARED}
    texts = {f"the {split} text": corpus.metadata["splits"][split]["sha256"] for split in ("train", "valid")}
    return {**shared, "--space": ",".join(FLAGS.space), **texts}


def train_trial(study, base, commit):
    """Trains a trial, or resumes it, and stores its result; returns whether there was one left to train."""
    with study.claimed(FLAGS.trials, commit=commit) as trial:
        if trial is None:
            return False
        run = RunFolder(Path(FLAGS.output_dir, f"trial_{trial.number}"))
        listed = " ".join(f"--{name}={value:.4g}" for name, value in trial.params.items())
        print(f"== trial {trial.number} of {FLAGS.trials}: {listed}", flush=True)
        with given(run_dir=str(run.path), **trial.params):
            with given(**lengths(base.settings, Experiment.of_flags().settings)):
                study.tell(trial, best_perplexity(run))
        shutil.rmtree(run.checkpoints, ignore_errors=True)  # a trial with a result does not resume
    return True


def lengths(base, trial):
    """Returns the settings with which a trial trains on as many tokens as the experiment of the flags.

    Args:
        base: Settings of the experiment of the flags.
        trial: Settings of the trial.
    """
    ratio = base["batch_size"] * row_length(base) / (trial["batch_size"] * row_length(trial))
    every = max(round(ratio * base["evaluate_every"]), 1)
    found = {"evaluate_every": every, "updates": base["updates"] // base["evaluate_every"] * every}
    for name in IN_UPDATES:
        if name in trial:
            found[name] = scaled(trial[name], ratio)
    return found


def scaled(value, ratio):
    return [scaled(one, ratio) for one in value] if isinstance(value, list) else round(ratio * value)


def best_perplexity(run):
    """Trains and returns the best validation perplexity; infinity if training diverged."""
    keras.backend.clear_session()
    try:
        train.main()
    except FloatingPointError as error:
        print(error, flush=True)
        return math.inf
    return perplexity(train.best_loss(run.path / "log.jsonl"))


def analyze(importances, trials, space, words):
    """Returns what the trials of a search tell, a dict for JSON.

    Args:
        importances: `forest.importances`.
        trials: List of what `SharedStudy.results` returns.
        space: Dict of the distributions.
        words: Size of the vocabulary, which is the perplexity of a uniform guess.
    """
    perplexities = [trial["perplexity"] for trial in trials]
    bounded = bound(perplexities, words)
    points = [[trial["hyper_parameters"][name] for name in space] for trial in trials]
    shares, lows, highs, r2 = importances(points, bounded)
    rows = {name: {"importance": shares[i], "low": lows[i], "high": highs[i]} for i, name in enumerate(space)}
    return {
        "space": {name: [one.low, one.high] for name, one in space.items()},
        "words": words,
        "failed": sum(value >= words for value in perplexities),
        "r2": r2,
        "importances": dict(sorted(rows.items(), key=lambda row: -row[1]["importance"])),
        "trials": [{**trial, "bounded": value} for trial, value in zip(trials, bounded)],
    }


def bound(perplexities, words):
    """Returns the perplexities that the forest sees.

    A trial has failed if its perplexity is infinite, or at least the number of words, the perplexity of a uniform
    guess. It gets the highest perplexity of the others: so it stays among the worst, and does not drown the differences
    of the others in the squared error.

    Raises:
        ValueError: If all trials have failed.
    """
    learned = [value for value in perplexities if value < words]
    if not learned:
        raise ValueError("No trial has learned anything: pass a lower --max_rate or more --updates.")
    return [value if value < words else max(learned) for value in perplexities]


def print_results(found):
    best = min(found["trials"], key=lambda trial: trial["bounded"])
    print(f"\n{len(found['trials'])} trials, of which {found['failed']} have learned nothing.", end=" ")
    print(f"The best is trial {best['trial']}: valid perplexity {best['perplexity']:.2f}.")
    print(f"Out-of-bag R² of the forest: {found['r2']:.2f}. Importances, and 80 % of forests of resampled trials:\n")
    rows = found["importances"].items()
    common.print_table(
        ["", "importance", "low", "high"],
        [[name, *(f"{row[key]:.3f}" for key in ("importance", "low", "high"))] for name, row in rows],
    )


if __name__ == "__main__":
    command_line.run(main, define_flags)
