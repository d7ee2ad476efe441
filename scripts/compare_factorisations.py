"""Trains the paper's eight inputs and outputs in turn – same decoder, data and updates – and compares them per word.

    python -m trainers.prepare --source=FOLDER --data_dir=data/mine
    python -m trainers.prepare --source=FOLDER --subwords=32000 --data_dir=data/mine_bpe
    python scripts/compare_factorisations.py --data_dir=data/mine --subword_dir=data/mine_bpe \\
        --config=configs/books_comparison.flags --updates=2000 --output_dir=runs/comparison

Every model gets a run folder in --output_dir; the same command again continues where it stopped and trains only what
is missing. --config holds the decoder, the batches and the optimizer. Word vectors are as wide as the decoder or a
share of it, as in the paper (Baevski & Auli 2019, table 3), and the filters of CNN as many times fewer than the paper's
as the decoder is narrower than its 1,024. Perplexities are per word, in blocks of the length of training; `known` is
the test's without the words that are `<unk>` to models of words, since models of sub-words spell them out; `seconds`
hold validations.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from absl import app, flags

from factorisations import MODELS, check_names, model_flags, reads_pieces
from keras_adaptive.files import read_json_lines
from keras_adaptive.layers.inputs.char_cnn import FILTERS

FLAGS = flags.FLAGS
ROOT = Path(__file__).parents[1]
RARE = 10  # occurrences in the training text, below which a word counts as rare
TRIAL_UPDATES = 20  # by which --minutes are turned into updates
PAPER_DIM = 1024


def define_flags():
    flags.DEFINE_string("data_dir", None, "Corpus of words.", required=True)
    flags.DEFINE_string("subword_dir", None, "Corpus of sub-words of the same text, for BPE and BPE-T.")
    flags.DEFINE_string("config", "configs/books_comparison.flags", "Flagfile of trainers.train, the same for all.")
    flags.DEFINE_list("names", list(MODELS), f"Of {', '.join(MODELS)}.")
    flags.DEFINE_list("seeds", ["1"], "Seeds of every model: NAME:SEED for one more seed of one of them.")
    flags.DEFINE_integer("updates", None, "Updates of every model; by default those of --config.", lower_bound=1)
    flags.DEFINE_float("minutes", None, "Train every model for about so long instead.", lower_bound=0)
    flags.DEFINE_string("output_dir", "runs/comparison", "Folder of the runs, the table and the pictures.")


def runs():
    """`[(name, seed)]` that the flags ask for."""
    named = [tuple(one.split(":")) for one in FLAGS.seeds if ":" in one]
    common = [seed for seed in FLAGS.seeds if ":" not in seed]
    wanted = list(dict.fromkeys([(name, seed) for name in FLAGS.names for seed in common] + named))
    check_names([name for name, _ in wanted], FLAGS.subword_dir, "--names and --seeds")
    return wanted


def read_flags(path):
    """The flags of a flagfile: a dict of strings."""
    lines = (line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines())
    return dict(line[2:].partition("=")[::2] for line in lines if line.startswith("--"))


def arguments(name, seed, run_dir, updates):
    """What `trainers.train` is called with."""
    dim = int(read_flags(FLAGS.config)["dim"])
    filters = ",".join(str(max(filters * dim // PAPER_DIM, 1)) for filters in FILTERS)
    data_dir = FLAGS.subword_dir if reads_pieces(name) else FLAGS.data_dir
    common = [f"--flagfile={FLAGS.config}", f"--data_dir={data_dir}", f"--run_dir={run_dir}", f"--seed={seed}"]
    lengths = [f"--updates={updates}", f"--evaluate_every={evaluate_every(updates)}"]
    return [*common, f"--filters={filters}", *model_flags(name, dim), *lengths]


def evaluate_every(updates):
    """The number of --config if it divides the updates; otherwise one validation, at the end."""
    every = int(read_flags(FLAGS.config).get("evaluate_every", updates))
    return every if updates % every == 0 else updates


def call(*command):
    """Runs a program of this project, which prints for itself."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if subprocess.run([sys.executable, *command], env=environment).returncode:
        raise ValueError(f"{' '.join(command[:2])} failed, see above. The same command goes on from here.")


def updates_of(name):
    """--updates, or as many as --minutes allow by a trial of a few."""
    if not FLAGS.minutes:
        return FLAGS.updates or int(read_flags(FLAGS.config)["updates"])
    trial = Path(FLAGS.output_dir, f"trial_{name.lower()}")
    call("-m", "trainers.train", *arguments(name, 1, trial, TRIAL_UPDATES), "--log_every=1", "--notensorboard")
    ends = [one["seconds"] for one in read_json_lines(trial / "log.jsonl") if "seconds" in one]
    return max(int(60 * FLAGS.minutes / np.median(np.diff(ends))), 1)


def report(analysis, wanted):
    """The table of the paper, the best first: means over the seeds of each model."""
    found = {run["name"]: run for run in analysis["runs"]}
    rows = {name: means([found[folder(*one)] for one in wanted if one[0] == name]) for name in dict(wanted)}
    rows = dict(sorted(rows.items(), key=lambda pair: pair[1]["valid"]))
    header = f"{'valid':>8} {'test':>8} {'known':>8} {'seconds':>8} {'parameters':>12} {f'loss, < {RARE}':>10}"
    print(f"\n{'':6} {'seeds':>5} {header}")
    for name, row in rows.items():
        numbers = [*(f"{row[key]:8.2f}" for key in ("valid", "test", "known"))]
        numbers += [f"{row['seconds']:8,.0f}", f"{row['parameters']:12,}"]
        print(f"{name:6} {row['seeds']:5}", *numbers, f"{row['rare']:10.2f}")
    return rows


def means(seeds):
    """The figures of one model: means over its runs."""
    values = {
        "valid": [run["perplexity"]["valid"] for run in seeds],
        "test": [run["perplexity"]["test"] for run in seeds],
        "known": [run["perplexity_of_known"]["test"] for run in seeds],
        "seconds": [run["seconds"] for run in seeds],
        "rare": [rare_loss(run["by_frequency"]) for run in seeds],
    }
    return {
        "seeds": len(seeds),
        "parameters": seeds[0]["parameters"],
        **{name: float(np.mean(one)) for name, one in values.items()},
    }


def rare_loss(bins):
    """The mean loss of the words that are rare in the training text."""
    rare = [one for one in bins if one["high"] is not None and one["high"] <= RARE]
    return sum(one["nll"] * one["tokens"] for one in rare) / max(sum(one["tokens"] for one in rare), 1)


def folder(name, seed):
    return f"{name.lower()}_{seed}"


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    try:
        wanted, output = runs(), Path(FLAGS.output_dir)
        paths = [output / folder(*one) for one in wanted]
        for one, path in zip(wanted, paths):
            print(f"== {one[0]}, seed {one[1]}: {path}", flush=True)
            begun = path / "flags.txt"
            updates = int(read_flags(begun)["updates"]) if FLAGS.minutes and begun.exists() else updates_of(one[0])
            call("-m", "trainers.train", *arguments(*one, path, updates))
        call("-m", "trainers.analyze", f"--output_dir={output}", "--contexts=0", *map(str, paths))
        analysis = json.loads((output / "analysis.json").read_text(encoding="utf-8"))
        text = json.dumps(report(analysis, wanted), indent=2) + "\n"
        (output / "comparison.json").write_text(text, encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"compare_factorisations: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
