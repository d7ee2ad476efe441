"""Losses of the words of a text under several runs. The folders of the runs keep them."""

import functools
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_adaptive import evaluation
from keras_adaptive.files import commit, partial, reading, writing
from keras_adaptive.models import Reading
from trainers.experiments.experiment import Experiment, plain
from trainers.experiments.run_folder import RunFolder
from trainers.support.progress import Progress

RECIPE = ("unit", "tokenizer", "min_count")  # settings that define the words of a corpus


class WordLosses(NamedTuple):
    """Losses of the words of a split in nats, (words,), their ids, (words,), and the model's number of parameters."""

    nll: np.ndarray
    words: np.ndarray
    parameters: int


class Blocks(NamedTuple):
    """Division of the text of a split into blocks.

    Attributes:
        of: "tokens", "lines", or "streams", for which the state is carried from block to block.
        size: Number of tokens in a block.
        context: Number of previous tokens that a block sees.
        batch_size: Number of blocks at a time, or number of streams.
    """

    of: str
    size: int
    context: int
    batch_size: int

    @property
    def name(self):
        """Part of the names of files that belong to these blocks."""
        if self.of == "streams":
            return f"in_{self.batch_size}_streams"
        return f"{self.size}{'_of_lines' if self.of == 'lines' else ''}_context_{self.context}"

    def describe(self, length):
        """Returns how a text of `length` tokens is read, in words that follow "read"."""
        if self.of == "streams":
            parts = "as a whole" if self.batch_size == 1 else f"in {self.batch_size:,} parts"
            return f"{parts}, with the state carried"
        if self == line_by_line(self.batch_size):
            return "line by line, without context"
        if self.of == "lines":
            return f"in blocks of up to {self.size:,} tokens in whole lines, after {self.context:,} of context"
        return Reading(self.size + self.context, self.context).describe(length)

    def word_losses(self, model, corpus, split, of="", mix=None, keys=False):
        """Returns `(nll, words)` of a split, as the functions of `evaluation` do. Lines of progress contain `of`."""
        mixed = {"mix": mix, "keys": keys} if mix else {}
        if self.of == "streams":
            how = {"report": Progress(f"blocks of {of or split}"), **mixed}
            return evaluation.word_losses_of_streams(model, corpus, split, self.size, self.batch_size, **how)
        how = {"by_lines": self.of == "lines", "report": Progress(f"tokens of {of or split}"), **mixed}
        return evaluation.word_losses(model, corpus, split, self.size, self.context, self.batch_size, **how)


def line_by_line(batch_size):
    """Returns the `Blocks` of single lines without context, as a run of --batching=sentences reads them."""
    return Blocks("lines", 1, 0, batch_size)


class Scored:
    """A folder that keeps the losses of a model, for its corpus or another one with the same vocabulary."""

    def __init__(self, path, name, data_dir=None):
        self.folder = RunFolder(path)
        self.name = name
        self.corpus = self.folder.corpus(data_dir)

    def texts(self):
        """Returns the digest of the text of each split."""
        return {split: facts["sha256"] for split, facts in self.corpus.metadata["splits"].items()}


class NGrams(Scored):
    """The folder of an n-gram model, which keeps nothing but the losses. It has no settings, windows and blocks."""

    def settings(self):
        return {}

    def windows(self, lengths, contexts):
        return []

    def blocks(self, choose):
        return None

    def losses(self, wanted):
        return {pair: self._of_split(pair[0]) for pair in wanted}

    def _of_split(self, split):
        path = _ngram_file(self.folder.path, split)
        if (kept := read_losses(path, _of_text(self.corpus, split))) is None:
            raise ValueError(
                f"{path} is missing or contains the losses of another text: make the folder again with "
                "`python -m trainers.kneser_ney`."
            )
        return kept


class Run(Scored):
    """A run whose folder keeps the losses of its "best" or "last" model."""

    def __init__(self, path, name, data_dir=None, model="best"):
        super().__init__(path, name, data_dir)
        self.flags = self.folder.flags()
        self.model = model
        self.model_file = self.folder.model_file(model)

    @functools.cached_property
    def model_digest(self):
        return digest(self.model_file)

    def settings(self):
        """Returns the settings of the run, except for --data_dir, and of its corpus.

        Only settings that the chosen parts take are included, with their defaults, because versions write different
        flags.
        """
        settings = self.flags
        if not self.folder.is_converted:
            experiment = Experiment.of_run(self.folder)
            settings = {name: plain(value) for name, value in {**experiment.parts, **experiment.settings}.items()}
        recipe = {name: str(self.corpus.metadata.get(name)) for name in RECIPE}
        return {name: value for name, value in settings.items() if name != "data_dir"} | recipe

    def windows(self, lengths, contexts):
        """Returns the pairs (length, context) with which the run is evaluated."""
        pairs, lengths = [], lengths or [self.folder.length]
        for length in lengths:
            quarters = sorted({length * part // 4 for part in range(4)})
            pairs += [(length, context) for context in contexts or quarters if 0 <= context < length]
        if not pairs:
            raise ValueError(
                f"--contexts must contain a number that is at least 0 and below the length of a window. Received: "
                f"--contexts={contexts} for windows of {lengths} tokens of {self.folder.path}. Pass 0 too, or longer "
                "--lengths."
            )
        return pairs

    def blocks(self, choose):
        """Returns the `Blocks` that a function chooses for the `RunFolder`."""
        return choose(self.folder)

    def losses(self, wanted):
        """Returns the `WordLosses` of pairs `(split, blocks)`, from the folder or by the model, loaded if needed."""
        model = functools.cache(lambda: self.folder.model(self.model))
        inference = functools.cache(lambda: model().for_inference())
        return {pair: self._of_blocks(model, inference, *pair) for pair in dict.fromkeys(wanted)}

    def _of_blocks(self, model, inference, split, blocks):
        last = "_of_last" if self.model == "last" else ""
        path = self.folder.path / f"losses_{split}_{blocks.name}{last}.npz"
        of = f"model {self.model_digest}, text {self.texts()[split]}"
        if (kept := read_losses(path, of)) is not None:
            return kept
        print(f"Evaluating for {path}", flush=True)
        losses = WordLosses(*blocks.word_losses(inference(), self.corpus, split, path.name), model().count_params())
        write_losses(path, of, losses)
        return losses


def digest(path):
    """Returns the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_ngrams(folder, corpus, split, losses):
    """Writes the `WordLosses` of an n-gram model for a split of a corpus."""
    write_losses(_ngram_file(folder, split), _of_text(corpus, split), losses)


def _ngram_file(folder, split):
    return Path(folder, f"losses_{split}.npz")


def _of_text(corpus, split):
    return f"text {corpus.metadata['splits'][split]['sha256']}"


def read_losses(path, of):
    """Reads the `WordLosses` of a file. Returns None if there is no file, or if its losses do not belong to `of`."""
    if not path.is_file():
        return None
    with reading(path, "a file of losses", "Remove it."), open(path, "rb") as file, np.load(file) as kept:
        if kept["of"] != of:
            return None
        losses = WordLosses(*(kept[name] for name in WordLosses._fields))
        if losses.nll.ndim != 1 or losses.nll.shape != losses.words.shape or not np.isfinite(losses.nll).all():
            raise ValueError("it must contain a finite loss for each word")
        return losses


def write_losses(path, of, losses):
    """Writes `WordLosses`, the whole file or nothing. The text `of` identifies what they belong to."""
    with writing(path):
        np.savez(partial(path), of=of, **losses._asdict())
        commit(path)


def open_runs(paths, data_dir=None, model="best"):
    """Opens the `Run` or the `NGrams` of each folder, and checks that all runs have the same text."""
    folders = [Path(path).resolve() for path in paths]
    bases = [folder.name for folder in folders]
    runs = []
    for path, folder in zip(paths, folders):
        if folders.count(folder) > 1:
            raise ValueError(f"{path} is given twice: name each run once.")
        name = folder.name if bases.count(folder.name) == 1 else str(path)
        is_ngram = RunFolder(path).is_ngram
        runs.append(NGrams(path, name, data_dir) if is_ngram else Run(path, name, data_dir, model))
        if runs[-1].texts() != runs[0].texts():
            raise ValueError(f"{path} has another text than {paths[0]}: only runs of the same corpus can be compared.")
    return runs
