"""Losses of the words of a text under several runs. The folders of the runs keep them."""

import functools
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_adaptive import evaluation
from keras_adaptive.files import commit, partial, reading, writing
from keras_adaptive.models import Reading
from trainers.experiments.run_folder import RunFolder
from trainers.support.progress import Progress


class WordLosses(NamedTuple):
    """Losses of the words of a split, as a file keeps them.

    Attributes:
        nll: Losses in nats, (words,).
        words: Ids of the words, (words,).
        parameters: Number of parameters of the model.
    """

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
        if self.of == "lines":
            return f"in blocks of up to {self.size:,} tokens in whole lines, after {self.context:,} of context"
        return Reading(self.size + self.context, self.context).describe(length)

    def word_losses(self, model, corpus, split, of=""):
        """Returns `(nll, words)` of a split, as the functions of `evaluation` do. Lines of progress contain `of`."""
        if self.of == "streams":
            report = Progress(f"blocks of {of or split}")
            return evaluation.word_losses_of_streams(model, corpus, split, self.size, self.batch_size, report)
        how = {"by_lines": self.of == "lines", "report": Progress(f"tokens of {of or split}")}
        return evaluation.word_losses(model, corpus, split, self.size, self.context, self.batch_size, **how)


class Run:
    """A run whose folder keeps the losses of a model.

    Args:
        path: Path of the folder.
        name: Name of the run.
        data_dir: Another corpus with the same vocabulary. Optional.
        model: Model of the run, "best" or "last".
    """

    def __init__(self, path, name, data_dir=None, model="best"):
        self.folder = RunFolder(path)
        self.name = name
        self.flags = self.folder.flags()
        self.corpus = self.folder.corpus(data_dir)
        self.model = model
        if not self.folder.is_ngram:
            self.model_file = self.folder.model_file(model)

    @functools.cached_property
    def model_digest(self):
        with open(self.model_file, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def texts(self):
        """Returns the digest of the text of each split."""
        return {split: facts["sha256"] for split, facts in self.corpus.metadata["splits"].items()}

    def losses(self, wanted):
        """Returns the losses of splits, from the folder or by the model, which is loaded only if it is needed.

        Args:
            wanted: List of pairs `(split, blocks)` of a split and its `Blocks`. The losses of an n-gram model do not
                depend on the blocks.

        Returns:
            Dict from each of these pairs to its `WordLosses`.
        """
        model = functools.cache(lambda: self.folder.model(self.model))
        inference = functools.cache(lambda: model().for_inference())
        get = self._of_ngrams if self.folder.is_ngram else functools.partial(self._of_model, model, inference)
        return {pair: get(*pair) for pair in dict.fromkeys(wanted)}

    def _of_model(self, model, inference, split, blocks):
        last = "_of_last" if self.model == "last" else ""
        path = self.folder.path / f"losses_{split}_{blocks.name}{last}.npz"
        of = f"model {self.model_digest}, text {self.texts()[split]}"
        old = path.with_name(path.name.replace("_context_", "_behind_"))  # its name in earlier versions
        if (kept := read_losses(path if path.exists() else old, of)) is not None:
            return kept
        print(f"Evaluating for {path}", flush=True)
        losses = WordLosses(*blocks.word_losses(inference(), self.corpus, split, path.name), model().count_params())
        write_losses(path, of, losses)
        return losses

    def _of_ngrams(self, split, blocks):
        path = ngram_file(self.folder.path, split)
        if (kept := read_losses(path, of_ngrams(self.corpus, split))) is None:
            raise ValueError(
                f"{path} is missing or contains the losses of another text: make the folder again with "
                "`python -m scripts.experiments.kneser_ney`."
            )
        return kept


def ngram_file(folder, split):
    """Returns the path of the losses of an n-gram model."""
    return Path(folder, f"losses_{split}.npz")


def of_ngrams(corpus, split):
    """Returns a text that identifies the split to which losses of an n-gram model belong."""
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


def open_runs(paths, **kwargs):
    """Opens the `Run` of each folder, and checks that all runs have the same text.

    Args:
        paths: Paths of the folders.
        **kwargs: Other arguments of `Run`.
    """
    folders = [Path(path).resolve() for path in paths]
    bases = [folder.name for folder in folders]
    runs = []
    for path, folder in zip(paths, folders):
        if folders.count(folder) > 1:
            raise ValueError(f"{path} is given twice: name each run once.")
        runs.append(Run(path, folder.name if bases.count(folder.name) == 1 else str(path), **kwargs))
        if runs[-1].texts() != runs[0].texts():
            raise ValueError(f"{path} has another text than {paths[0]}: only runs of the same corpus can be compared.")
    return runs
