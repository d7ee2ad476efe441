"""Compares runs: the words that they predict better, the effect of context, and the effect of their flags.

    python -m trainers.analyze [--split=test] [--contexts=0,128,480] [--output_dir=runs/analysis] RUN [RUN ...]

The program prints a table of the runs, the best first, and writes analysis.json and its pictures into --output_dir:

- loss_by_frequency.png and loss_by_previous.png: the loss of words by their frequency in the training text, and by the
  frequency of the word before them;
- contexts.png: perplexity against context. Windows are as long as in training, or --lengths, and are cut between
  tokens, not lines; the context is the beginning of a window, which is read and not scored;
- perplexity.png: the runs side by side, and perplexity_by_FLAG.png if they differ in the number of one flag only;
- probability_by_position.png: the probability of the right word by its position after *The*, or of the right character
  by its position in the word; and probability_by_length.png: the same for words of each length, for characters only.

Runs of characters or bytes are compared in bits per character or byte instead of perplexity, in bits.png and
bits_by_FLAG.png. The runs must have the same text. Each run's folder keeps its losses (losses_*.npz), so that a second
call evaluates only new runs and windows.
"""

import functools
import hashlib
import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags

from keras_adaptive import evaluation
from keras_adaptive.data import EOS, UNK
from keras_adaptive.files import commit, partial, read_json_lines, reading, write_json, writing
from keras_adaptive.metrics import perplexity
from trainers import command_line
from trainers.experiment import Experiment, plain
from trainers.progress import Progress
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS
SPLITS = ("valid", "test")
EDGES = [0, *(10**power for power in range(9))]  # the same for all runs; bins without a word are left out
PERPLEXITY, BITS = {"name": "perplexity", "digits": 2}, {"name": "bits", "digits": 4}  # of words, of characters
RECIPE = ("unit", "tokenizer", "min_count")  # how the text of a corpus became words


def define_flags():
    flags.DEFINE_enum("split", "valid", SPLITS, "Split to analyze.")
    flags.DEFINE_list("lengths", [], "Tokens of a window, context included; by default the length of training.")
    flags.DEFINE_list("contexts", [], "Tokens of a window that are context; by default 0 to 3 quarters of the window.")
    flags.DEFINE_integer("batch_size", 16, "Blocks at a time.", 1, 2**20)
    flags.DEFINE_string("output_dir", "runs/analysis", "Folder for analysis.json and the pictures.")


class WordLosses(NamedTuple):
    """Part of an evaluation that is kept in a file."""

    nll: np.ndarray  # (words,)
    words: np.ndarray  # (words,), their ids
    parameters: int  # of the model


class Run:
    """Run whose folder keeps the losses of its best model."""

    def __init__(self, path, name):
        self.folder = RunFolder(path)
        self.name = name
        self.flags = self.folder.flags()
        self.corpus = self.folder.corpus()
        self.length = self.folder.length
        self.model_file = self.folder.model_file()

    @functools.cached_property
    def model_digest(self):
        with open(self.model_file, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def texts(self):
        """Returns the digest of each split's text."""
        return {split: facts["sha256"] for split, facts in self.corpus.metadata["splits"].items()}

    def settings(self):
        """Returns the settings of the run, except for --data_dir, and how its text became words.

        The settings are those that the chosen parts take, defaults included: versions write different flags.
        """
        settings = self.flags
        if not self.folder.is_converted:
            experiment = Experiment.of_run(self.folder)
            settings = {name: plain(value) for name, value in {**experiment.parts, **experiment.settings}.items()}
        recipe = {name: str(self.corpus.metadata.get(name)) for name in RECIPE}
        return {name: value for name, value in settings.items() if name != "data_dir"} | recipe

    def losses(self, model, inference, split, block, context=0, carried=False):
        """Returns the `WordLosses` of a split, from the folder or by `inference()`.

        The split is read in blocks after `context` tokens, or in streams if the state is carried from block to block.
        """
        how = f"in_{FLAGS.batch_size}_streams" if carried else f"{block}_behind_{context}"
        path = self.folder.path / f"losses_{split}_{how}.npz"
        of = f"model {self.model_digest}, text {self.texts()[split]}"
        if path.is_file():
            with reading(path, "a file of losses", "Remove it."), np.load(path) as kept:
                if kept["of"] == of:
                    return WordLosses(*(kept[name] for name in WordLosses._fields))
        print(f"Evaluating for {path}", flush=True)
        report = Progress(f"{'blocks' if carried else 'tokens'} of {path.name}")
        if carried:
            how = split, block, FLAGS.batch_size, report
            nll_and_words = evaluation.word_losses_of_streams(inference(), self.corpus, *how)
        else:
            nll_and_words = evaluation.word_losses(
                inference(), self.corpus, split, block, context, FLAGS.batch_size, report=report
            )
        result = WordLosses(*nll_and_words, model().count_params())
        write_arrays(path, of=of, **result._asdict())
        return result


def write_arrays(path, **arrays):
    """Writes an .npz file, whole or not at all."""
    with writing(path):
        np.savez(partial(path), **arrays)
        commit(path)


def open_runs(paths):
    """Returns the `Run` of each folder, after checking that the runs are comparable."""
    folders = [Path(path).resolve() for path in paths]
    bases = [folder.name for folder in folders]
    runs = []
    for path, folder in zip(paths, folders):
        if folders.count(folder) > 1:
            raise ValueError(f"{path} is given twice: name each run once.")
        runs.append(Run(path, folder.name if bases.count(folder.name) == 1 else str(path)))
        if runs[-1].texts() != runs[0].texts():
            raise ValueError(
                f"{path} is a run of another text than {paths[0]}: only runs of one corpus can be compared. "
                "Analyze them apart, with another --output_dir."
            )
    return runs


def windows(run, lengths, contexts):
    """Returns the pairs of a length and a shorter context with which a run is evaluated."""
    pairs = []
    for length in lengths or [run.length]:
        quarters = sorted({length * part // 4 for part in range(4)})
        pairs += [(length, context) for context in contexts or quarters if 0 <= context < length]
    if not pairs:
        raise ValueError(
            f"--contexts must hold one from 0 to below the length that is read at a time. Received: {contexts} for "
            f"{lengths or [run.length]} tokens of {run.folder.path}. Pass 0 too, or longer --lengths."
        )
    return pairs


def analyze(run, split, pairs):
    """Returns the figures of one run, as analysis.json holds them."""
    model = functools.cache(run.folder.model)  # of one run at a time, and only if its folder lacks losses
    losses_of = functools.partial(run.losses, model, functools.cache(lambda: model().for_inference()))
    plain = {one: losses_of(one, run.length, carried=run.folder.of_streams) for one in SPLITS}
    nll, words, parameters = plain[split]
    previous = np.append(EOS, words[:-1])
    return {
        "name": run.name,
        "path": str(run.folder.path),
        "unit": run.corpus.metadata["unit"] if evaluation.is_of_characters(run.corpus) else "word",
        "settings": run.settings(),
        "parameters": int(parameters),
        **training(run.folder.path / "log.jsonl"),
        "words": {one: len(losses.nll) for one, losses in plain.items()},
        "loss": {one: float(losses.nll.mean()) for one, losses in plain.items()},
        "bits": {one: float(losses.nll.mean()) / math.log(2) for one, losses in plain.items()},
        "perplexity": {one: perplexity(losses.nll.mean()) for one, losses in plain.items()},
        "perplexity_of_known": {one: perplexity_of_known(losses) for one, losses in plain.items()},
        "by_frequency": evaluation.by_frequency(nll, words, run.corpus, EDGES),
        "by_previous": evaluation.by_frequency(nll, previous, run.corpus, EDGES),
        "by_position": evaluation.by_position(nll, words, run.corpus),
        "by_length": evaluation.by_length(nll, words, run.corpus),
        "contexts": [by_context(losses_of, split, *pair) for pair in pairs],
    }


def perplexity_of_known(losses):
    """Returns the perplexity of the words of the vocabulary.

    Models of words predict all other words as one frequent symbol, and models of sub-words spell them out.
    """
    return perplexity(losses.nll[losses.words != UNK].mean())


def by_context(losses_of, split, length, context):
    """Returns the losses in windows of `length` tokens, the first `context` of which are not scored."""
    loss = float(losses_of(split, length - context, context).nll.mean())
    figures = {"loss": loss, "bits": loss / math.log(2), "perplexity": perplexity(loss)}
    return {"length": length, "context": context, **figures}


def training(log):
    """Returns the tokens and seconds of all `fit`s in a log; updates repeated after a resume count twice."""
    records = [one for one in read_json_lines(log) if "seconds" in one] if log.exists() else []
    ends = [one for one, after in zip(records, records[1:]) if after["seconds"] < one["seconds"]] + records[-1:]
    return {name: sum(one[name] for one in ends) if ends else None for name in ("tokens", "seconds")}


def compare(runs, split):
    """Returns the runs, best first, with the names of the settings in which they differ and what measures them."""
    for run in runs[1:]:
        if run["words"] != runs[0]["words"]:
            raise ValueError(
                f"{run['path']} has other words than {runs[0]['path']} ({run['words']} and {runs[0]['words']}), so "
                "their losses cannot be compared: prepare both corpora with one --tokenizer and --unit."
            )
    names = sorted({name for run in runs for name in run["settings"]})
    differing = [name for name in names if len({run["settings"].get(name) for run in runs}) > 1]
    unit = runs[0]["unit"]
    return {
        "split": split,
        "measure": {"unit": unit, **(PERPLEXITY if unit == "word" else BITS)},
        "differing": differing,
        "runs": sorted(runs, key=lambda run: run["perplexity"][split]),
    }


def table(analysis):
    """Returns the comparison as lines of text."""
    measure, digits = analysis["measure"]["name"], analysis["measure"]["digits"]
    rows = [["run", *analysis["differing"], "parameters", "tokens", "seconds", *SPLITS]]
    for run in analysis["runs"]:
        settings = [run["settings"].get(name) or "–" for name in analysis["differing"]]
        numbers = ["–" if run[name] is None else f"{run[name]:,.0f}" for name in ("parameters", "tokens", "seconds")]
        rows.append([run["name"], *settings, *numbers, *(f"{run[measure][one]:,.{digits}f}" for one in SPLITS)])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def integers(name):
    """Returns the value of a list flag."""
    given = FLAGS[name].value
    if not all(re.fullmatch("-?[0-9]{1,7}", one) for one in given):
        received = ",".join(given)[:80]
        raise ValueError(f"--{name} must be numbers of tokens such as 0,128. Received: {received}")
    return list(map(int, given))


def main(*paths):
    from trainers.plots.analysis import draw_analysis  # before the work, since matplotlib may be missing

    runs = open_runs(paths)
    pairs = [windows(run, integers("lengths"), integers("contexts")) for run in runs]
    folder = Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)  # before the work, since it may be no folder
    analysis = compare([analyze(run, FLAGS.split, pair) for run, pair in zip(runs, pairs)], FLAGS.split)
    measure = "{name} per {unit}".format(**analysis["measure"])
    print(*table(analysis), f"{measure}, in blocks of the length of training or in streams", sep="\n", flush=True)
    write_json(folder / "analysis.json", analysis)
    print(*draw_analysis(analysis, folder), folder / "analysis.json", sep="\n")


if __name__ == "__main__":
    command_line.run(main, define_flags, paths="RUN, the --run_dir of a training")
