"""Trains systems in turn, with several seeds, and compares them per word.

    python -m trainers.prepare --source=FOLDER --data_dir=data/mine
    python -m trainers.prepare --source=FOLDER --subwords=32000 --data_dir=data/mine_bpe
    python -m scripts.experiments.compare --data_dir=data/mine --subword_dir=data/mine_bpe \\
        --flagfiles='configs/books_comparison/*.flags' --seeds=1,2 --output_dir=runs/comparison

A system is a flagfile of trainers.train and has the name of the file. --common may contain flags of all systems. A
system whose name begins with "bpe" reads --subword_dir. Every system and seed has a run folder in --output_dir. The
same command resumes after it was stopped, and trains only missing runs.

comparison.json contains the machine with its commit and threads, and the table: the figures of every seed, with means
and standard deviations. Its `validations` are the perplexities per token of all validations, whose means are printed if
there are more than two, and its `by_frequency` the losses of bins of words. learning_curves.png and losses_of_seeds.png
show both, with a band from the lowest seed to the highest. The pictures of trainers.analyze are in the same folder.

Perplexities are per word, in blocks of the length of training. `known` is the perplexity of the test words except
those that are `<unk>` to models of words, since models of sub-words spell them. `rare` is the loss of words with fewer
than 10 occurrences in the training text. `seconds` include validations.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from absl import flags

from keras_adaptive.files import read_json_lines, write_json
from keras_adaptive.metrics import perplexity
from scripts.benchmarks.common import machine
from scripts.experiments import systems
from trainers.experiments.experiment import Experiment
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line
from trainers.support.tables import aligned

FLAGS = flags.FLAGS
ROOT = Path(__file__).parents[2]
RARE = 10  # words with fewer occurrences in the training text are rare
TRIAL_UPDATES = 20  # number of updates that measure the speed for --minutes
PERPLEXITIES = ("valid", "test", "known")


def define_flags():
    command_line.define_path("data_dir", None, "Corpus of words.", required=True)
    command_line.define_path("subword_dir", None, "Corpus of sub-words of the same text.")
    command_line.define_path("common", None, "Flagfile of trainers.train for all systems. Optional.")
    command_line.define_paths("flagfiles", None, "Flagfiles of the systems, or patterns of them.", required=True)
    flags.DEFINE_list("seeds", ["1"], "Seeds of every system; NAME:SEED adds a seed to one system.")
    flags.DEFINE_integer(
        "updates", None, "Number of updates of every system; by default as in its flags.", lower_bound=1
    )
    flags.DEFINE_float("minutes", None, "Approximate training time of every system, instead of --updates.", 0)
    flags.DEFINE_integer(
        "validations", 2, "Number of validations in a training with --updates or --minutes.", lower_bound=1
    )
    command_line.define_path("output_dir", "runs/comparison", "Folder of the runs, the table and the pictures.")


def main():
    from scripts.experiments import plot_comparison  # not at the top: matplotlib is optional

    output = Path(FLAGS.output_dir)
    read = systems.read(FLAGS.flagfiles, FLAGS.data_dir, FLAGS.subword_dir)
    wanted = {(name, seed): output / f"{name}_{seed}" for name, seed in pairs(read)}
    for (name, seed), run_dir in wanted.items():
        print(f"== {name}, seed {seed}: {run_dir}", flush=True)
        train(read[name], run_dir, f"--seed={seed}", *lengths(read[name], run_dir, output / f"trial_{name}"))
    call("-m", "trainers.analyze", f"--output_dir={output}", "--contexts=0", *map(str, wanted.values()))
    analysis = json.loads((output / "analysis.json").read_text(encoding="utf-8"))
    table = summarize(analysis, {key: run_dir.name for key, run_dir in wanted.items()})
    print_table(table)
    print_validations(table)
    given = {name: FLAGS[name].value for name in ("common", "flagfiles", "seeds", "updates", "minutes", "validations")}
    result = {"machine": machine(), "settings": given, "systems": table}
    write_json(output / "comparison.json", result)
    plot_comparison.draw_comparison(table, output)


def pairs(names):
    """Returns the list of the (system, seed) that the flags describe."""
    more = [tuple(seed.rsplit(":", 1)) for seed in FLAGS.seeds if ":" in seed]
    shared = [seed for seed in FLAGS.seeds if ":" not in seed]
    chosen = list(dict.fromkeys([(name, seed) for name in names for seed in shared] + more))
    if unknown := sorted({name for name, _ in chosen} - set(names)):
        raise ValueError(f"--seeds must name systems of {', '.join(names)}. Received: --seeds of {', '.join(unknown)}.")
    return chosen


def train(system, run_dir, *arguments):
    """Trains a system, or resumes it, with additional flags of trainers.train."""
    call("-m", "trainers.train", *common(), *system, f"--run_dir={run_dir}", *arguments)


def common():
    """Returns the arguments of trainers.train for all systems."""
    return [f"--flagfile={FLAGS.common}"] if FLAGS.common else []


def lengths(system, run_dir, trial_dir):
    """Returns the flags of trainers.train for --updates or --minutes; an empty list by default."""
    if not FLAGS.updates and not FLAGS.minutes:
        return []
    updates = FLAGS.updates or updates_in_time(system, run_dir, trial_dir)
    if updates % FLAGS.validations:
        raise ValueError(
            "--updates must be a multiple of --validations. "
            f"Received: --updates={updates} --validations={FLAGS.validations}."
        )
    return [f"--updates={updates}", f"--evaluate_every={updates // FLAGS.validations}"]


def updates_in_time(system, run_dir, trial_dir):
    """Returns the number of updates in --minutes, measured by a short trial. A run that has begun keeps its number."""
    if (run_dir / "flags.txt").exists():
        return int(RunFolder(run_dir).flags()["updates"])
    settings = Experiment.of_arguments([*common(), *system]).settings
    every = TRIAL_UPDATES // 2 if "average_after" in settings else TRIAL_UPDATES
    trial = [f"--updates={TRIAL_UPDATES}", f"--evaluate_every={every}", "--log_every=1", "--notensorboard"]
    early = {"warmup": "0", "decay_at": "", "average_after": "1"}  # they might exceed the updates of the trial
    trial += [f"--{name}={value}" for name, value in early.items() if name in settings]
    train(system, trial_dir, "--seed=1", *trial)
    seconds = [record["seconds"] for record in read_json_lines(trial_dir / "log.jsonl") if "loss" in record]
    update = statistics.median(end - start for start, end in zip(seconds, seconds[1:]))
    return max(int(60 * FLAGS.minutes / update) // FLAGS.validations, 1) * FLAGS.validations


def call(*command):
    """Runs a program of this project, whose output is shown."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if subprocess.run([sys.executable, *command], env=environment).returncode:
        raise ValueError(f"{' '.join(command[:2])} failed, see above. The same command resumes from here.")


def summarize(analysis, names):
    """Returns the table, `{system: row}`, the best first, of an analysis whose runs `names` gives by (system, seed)."""
    runs = {run["name"]: run for run in analysis["runs"]}
    rows = {}
    for name in dict.fromkeys(system for system, _ in names):
        rows[name] = row([runs[run] for (system, _), run in names.items() if system == name])
    return dict(sorted(rows.items(), key=lambda pair: pair[1]["valid"]["mean"]))


def row(runs):
    """Returns the figures of a system: means over the runs of all seeds, and standard deviations of several."""
    values = {
        "valid": [run["perplexity"]["valid"] for run in runs],
        "test": [run["perplexity"]["test"] for run in runs],
        "known": [run["perplexity_of_known"]["test"] for run in runs],
        "seconds": [run["seconds"] for run in runs],
        "rare": [rare_loss(run["by_frequency"]) for run in runs],
    }
    figures = {name: of_seeds(numbers) for name, numbers in values.items()}
    losses = [{record["update"]: record["loss"] for record in run["validations"]} for run in runs]
    updates = sorted(set(losses[0]).intersection(*losses))
    validations = {update: of_seeds([perplexity(run[update]) for run in losses]) for update in updates}
    bins = [
        {"low": parts[0]["low"], "high": parts[0]["high"], "nll": of_seeds([part["nll"] for part in parts])}
        for parts in zip(*(run["by_frequency"] for run in runs), strict=True)
    ]
    of_runs = {"validations": validations, "by_frequency": bins}
    return {"seeds": len(runs), "parameters": runs[0]["parameters"], **figures, **of_runs}


def of_seeds(numbers):
    """Returns the figure of a system: its mean, its standard deviation and the values in the order of the seeds."""
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    return {"mean": statistics.mean(numbers), "std": deviation, "runs": numbers}


def rare_loss(bins):
    """Returns the mean loss of the words that are rare in the training text."""
    rare = [part for part in bins if part["high"] is not None and part["high"] <= RARE]
    return sum(part["nll"] * part["tokens"] for part in rare) / max(sum(part["tokens"] for part in rare), 1)


def print_table(table):
    """Prints the mean of every column, and the standard deviation of perplexities if there are several seeds."""
    rows = [["", "seeds", "parameters", *PERPLEXITIES, "seconds", "rare"]]
    for name, figures in table.items():
        scores = [figures[split] for split in PERPLEXITIES]
        cells = [f"{one['mean']:,.2f}" + ("" if one["std"] is None else f" ±{one['std']:.2f}") for one in scores]
        ends = f"{figures['seconds']['mean']:,.0f}", f"{figures['rare']['mean']:.2f}"
        rows.append([name, figures["seeds"], f"{figures['parameters']:,}", *cells, *ends])
    print("", *aligned(rows), sep="\n")


def print_validations(table):
    """Prints the mean perplexity of each validation, with a column per system."""
    updates = sorted(set().union(*(figures["validations"] for figures in table.values())))
    if len(updates) > 2:
        rows = [["update", *table]]
        for update in updates:
            values = (figures["validations"].get(update) for figures in table.values())
            rows.append([f"{update:,}", *(f"{value['mean']:,.2f}" if value else "" for value in values)])
        print("", *aligned(rows), sep="\n")


if __name__ == "__main__":
    command_line.run(main, define_flags)
