"""Compares runs: the words that they predict better, the effect of context, and the effect of their flags.

    python -m trainers.analyze [--split=test] [--contexts=0,128,480] [--output_dir=runs/analysis] RUN [RUN ...]

The program prints a table of the runs, the best first, and writes analysis.json and these pictures into --output_dir:

- loss_by_frequency.png and loss_by_previous.png: the loss of words by their frequency in the training text, and by the
  frequency of the previous word.
- contexts.png: perplexity by context. Windows have the length of training, or --lengths, and are cut between tokens,
  not lines. The context is the beginning of a window, which is read but not scored. With several --lengths and a single
  context: perplexity by length.
- validations.png: the loss of each validation during training.
- perplexity.png: the perplexity of each run; perplexity_by_FLAG.png, if the runs differ only in the value of one flag.
- gain_over_NAME.png, with --baseline: the gain in log-probability of the other runs over the baseline, such as a
  Kneser-Ney model of trainers.kneser_ney, in 25 buckets of equal size, with the rarest words on the right.
- probability_by_position.png: the probability of the correct word by its position after *The*, or of the correct
  character by its position in the word; probability_by_length.png: the same for words of each length, for characters
  only.

Runs of characters or bytes are compared in bits per character or byte instead of perplexity, in bits.png and
bits_by_FLAG.png. The runs must have the same text. The folder of each run keeps its losses (losses_*.npz), so that a
second call evaluates only new runs and windows.
"""

import math
import re
from pathlib import Path

import numpy as np
from absl import flags

from keras_adaptive import evaluation
from keras_adaptive.data import EOS, UNK
from keras_adaptive.files import check_result, read_json_lines, write_json
from keras_adaptive.metrics import loss_by_bucket, loss_by_frequency, perplexity
from trainers.experiments.word_losses import Blocks, line_by_line, open_runs
from trainers.support import command_line
from trainers.support.tables import aligned

FLAGS = flags.FLAGS
SPLITS = ("valid", "test")
EDGES = [0, *(10**power for power in range(9))]  # the same for all runs; empty bins are omitted
PERPLEXITY, BITS = {"name": "perplexity", "digits": 2}, {"name": "bits", "digits": 4}  # for words, for characters


def define_flags():
    flags.DEFINE_enum("split", "valid", SPLITS, "Split to analyze.")
    flags.DEFINE_list(
        "lengths", [], "Numbers of tokens in a window, including context; by default the length in training."
    )
    flags.DEFINE_list(
        "contexts", [], "Numbers of context tokens in a window; by default 0, 1, 2 and 3 quarters of the window."
    )
    flags.DEFINE_integer("batch_size", 16, "Number of blocks at a time.", 1, 2**20)
    command_line.define_path("baseline", None, "RUN over which the gains of the other runs are measured. Optional.")
    command_line.define_path("output_dir", "runs/analysis", "Folder for analysis.json and the pictures.")


def of_training(run):
    """Returns the `Blocks` that match the training of a `RunFolder`."""
    if run.of_sentences:
        return line_by_line(FLAGS.batch_size)
    return Blocks("streams" if run.of_streams else "tokens", run.length, 0, FLAGS.batch_size)


def window(length, context):
    """Returns the `Blocks` of windows of `length` tokens, whose first `context` tokens are not scored."""
    return Blocks("tokens", length - context, context, FLAGS.batch_size)


def analyze(run, split, pairs):
    """Returns the figures of one run, in the form of analysis.json."""
    blocks = run.blocks(of_training)
    losses = run.losses([(part, blocks) for part in SPLITS] + [(split, window(*pair)) for pair in pairs])
    plain = {part: losses[part, blocks] for part in SPLITS}
    nll, words, parameters = plain[split]
    counts = run.corpus.word_vocabulary.counts
    return {
        "name": run.name,
        "path": str(run.folder.path),
        "unit": run.corpus.unit if run.corpus.unit.is_character else "word",
        "settings": run.settings(),
        "parameters": int(parameters),
        **training(run.folder.path / "log.jsonl"),
        "words": {part: len(losses.nll) for part, losses in plain.items()},
        "loss": {part: float(losses.nll.mean()) for part, losses in plain.items()},
        "bits": {part: float(losses.nll.mean()) / math.log(2) for part, losses in plain.items()},
        "perplexity": {part: perplexity(losses.nll.mean()) for part, losses in plain.items()},
        "perplexity_of_known": {part: perplexity_of_known(losses) for part, losses in plain.items()},
        "by_frequency": loss_by_frequency(nll, words, counts, EDGES),
        "by_previous": loss_by_frequency(nll, np.append(EOS, words[:-1]), counts, EDGES),
        "by_bucket": loss_by_bucket(nll, words, counts),
        "by_position": evaluation.by_position(nll, words, run.corpus),
        "by_length": evaluation.by_length(nll, words, run.corpus),
        "contexts": [by_context(losses[split, window(*pair)], *pair) for pair in pairs],
    }


def check_baseline(runs):
    """Checks that --baseline is one of the runs and that all have its vocabulary, and returns its name."""
    path = Path(FLAGS.baseline).resolve()
    baselines = [run for run in runs if run.folder.path.resolve() == path]
    if not baselines:
        raise ValueError(f"--baseline must be one of the compared runs. Received: --baseline={FLAGS.baseline}.")
    for run in runs:
        if run.corpus.word_vocabulary.sha256 != baselines[0].corpus.word_vocabulary.sha256:
            raise ValueError(
                f"{run.folder.path} has another vocabulary than {baselines[0].folder.path}, so its gain cannot be "
                "measured word by word: omit this run, or omit --baseline."
            )
    return baselines[0].name


def perplexity_of_known(losses):
    """Returns the perplexity of the words in the vocabulary.

    Models of words predict all other words as one frequent symbol, while models of sub-words spell them.
    """
    return perplexity(losses.nll[losses.words != UNK].mean())


def by_context(losses, length, context):
    """Returns the mean losses in windows of `length` tokens, whose first `context` tokens are not scored."""
    loss = float(losses.nll.mean())
    figures = {"loss": loss, "bits": loss / math.log(2), "perplexity": perplexity(loss)}
    return {"length": length, "context": context, **figures}


def training(log):
    """Returns the tokens and seconds of all `fit`s in a log, and its validations, with their loss in nats per token.

    Updates that a resumed training repeats are counted twice, and their validations once.
    """
    records = read_json_lines(log) if log.exists() else []
    timed = [record for record in records if "seconds" in record]
    ends = [first for first, second in zip(timed, timed[1:]) if second["seconds"] < first["seconds"]] + timed[-1:]
    totals = {name: sum(record[name] for record in ends) if ends else None for name in ("tokens", "seconds")}
    losses = {record["update"]: record["val_loss"] for record in records if record.get("val_loss") is not None}
    return {**totals, "validations": [{"update": update, "loss": losses[update]} for update in sorted(losses)]}


def compare(runs, split, baseline=None):
    """Compares results of `analyze`: returns them, the best on `split` first, and the settings in which they differ.

    `baseline` is the name of the run over which gains are measured.
    """
    for run in runs[1:]:
        if run["words"] != runs[0]["words"]:
            raise ValueError(
                f"{run['path']} has other words than {runs[0]['path']} ({run['words']} and {runs[0]['words']}), so "
                "their losses cannot be compared: prepare both corpora with the same --tokenizer and --unit."
            )
    settings = [run["settings"] for run in runs if run["settings"]]  # an n-gram model has none
    differing = [name for name in sorted(set().union(*settings)) if len({values.get(name) for values in settings}) > 1]
    unit = runs[0]["unit"]
    return {
        "split": split,
        "measure": {"unit": unit, **(PERPLEXITY if unit == "word" else BITS)},
        "differing": differing,
        "baseline": baseline,
        "runs": sorted(runs, key=lambda run: run["perplexity"][split]),
    }


def table(analysis):
    """Returns the comparison as lines of text."""
    measure, digits = analysis["measure"]["name"], analysis["measure"]["digits"]
    rows = [["run", *analysis["differing"], "parameters", "tokens", "seconds", *SPLITS]]
    for run in analysis["runs"]:
        settings = [run["settings"].get(name) or "–" for name in analysis["differing"]]
        numbers = ["–" if run[name] is None else f"{run[name]:,.0f}" for name in ("parameters", "tokens", "seconds")]
        rows.append([run["name"], *settings, *numbers, *(f"{run[measure][part]:,.{digits}f}" for part in SPLITS)])
    return aligned(rows)


def integers(name):
    """Returns the value of a list flag as integers."""
    given = FLAGS[name].value
    if not all(re.fullmatch("-?[0-9]{1,7}", text) for text in given):
        received = ",".join(given)[:80]
        raise ValueError(f"--{name} must be numbers of tokens, such as 0,128. Received: --{name}={received}.")
    return list(map(int, given))


def check_folder(folder):
    """Raises a ValueError if the folder has another analysis.json, or pictures but no analysis.json."""
    check_result(folder / "analysis.json", ("split", "measure", "runs"))
    if not (folder / "analysis.json").exists() and (pictures := sorted(folder.glob("*.png"))):
        raise ValueError(
            "--output_dir must be a new folder, or the folder of an analysis. "
            f"Received: --output_dir={folder}, which has {pictures[0].name}. Pass another."
        )


def main(*paths):
    from trainers.plots.analysis import draw_analysis  # fails before the work begins if matplotlib is missing

    runs = open_runs(paths)
    pairs = [run.windows(integers("lengths"), integers("contexts")) for run in runs]
    baseline = FLAGS.baseline and check_baseline(runs)
    folder = Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)  # fails before the work begins if the path is a file
    check_folder(folder)
    analysis = compare([analyze(run, FLAGS.split, pair) for run, pair in zip(runs, pairs)], FLAGS.split, baseline)
    measure = "{name} per {unit}".format(**analysis["measure"])
    print(*table(analysis), f"{measure}, in blocks of the length of training or in streams", sep="\n", flush=True)
    write_json(folder / "analysis.json", analysis)
    print(*draw_analysis(analysis, folder), folder / "analysis.json", sep="\n")


if __name__ == "__main__":
    command_line.run(main, define_flags, paths="RUN, the --run_dir of a training")
