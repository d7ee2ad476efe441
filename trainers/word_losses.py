"""Losses of the words of a text by several runs, which the folders of the runs keep."""

import functools
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_adaptive import evaluation
from keras_adaptive.files import commit, partial, reading, writing
from trainers.progress import Progress
from trainers.run_folder import RunFolder


class WordLosses(NamedTuple):
    """Part of an evaluation that is kept in a file."""

    nll: np.ndarray  # (words,)
    words: np.ndarray  # (words,), their ids
    parameters: int  # of the model


class Blocks(NamedTuple):
    """How the text of a split is cut into blocks."""

    of: str  # "tokens", "lines" or "streams", in which the state is carried from block to block
    size: int  # in tokens
    context: int  # previous tokens that a block may see
    batch_size: int  # blocks at a time, or streams

    @property
    def name(self):
        """Part of the name of a file."""
        if self.of == "streams":
            return f"in_{self.batch_size}_streams"
        return f"{self.size}{'_of_lines' if self.of == 'lines' else ''}_behind_{self.context}"

    def word_losses(self, model, corpus, split, of=""):
        """Returns `(nll, words)` of a split, as the functions of `evaluation`; `of` names it in the progress."""
        if self.of == "streams":
            report = Progress(f"blocks of {of or split}")
            return evaluation.word_losses_of_streams(model, corpus, split, self.size, self.batch_size, report)
        how = {"by_lines": self.of == "lines", "report": Progress(f"tokens of {of or split}")}
        return evaluation.word_losses(model, corpus, split, self.size, self.context, self.batch_size, **how)


class Run:
    """Run whose folder keeps the losses of a model.

    Args:
        path: Path of the folder.
        name: Name of the run.
        data_dir: Another corpus of the same vocabulary. Optional.
        model: "best" or "last", which of the run's models.
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
        """Returns the digest of each split's text."""
        return {split: facts["sha256"] for split, facts in self.corpus.metadata["splits"].items()}

    def losses(self, wanted):
        """Returns the losses of splits, from the folder or by the model, which is loaded only if it is needed.

        Args:
            wanted: List of `(split, blocks)`, where `blocks` are `Blocks`. The losses of an n-gram model do not depend
                on them.

        Returns:
            Dict from each of these pairs to its `WordLosses`.
        """
        model = functools.cache(lambda: self.folder.model(self.model))
        inference = functools.cache(lambda: model().for_inference())
        get = self._of_ngrams if self.folder.is_ngram else functools.partial(self._of_model, model, inference)
        return {one: get(*one) for one in dict.fromkeys(wanted)}

    def _of_model(self, model, inference, split, blocks):
        last = "_of_last" if self.model == "last" else ""
        path = self.folder.path / f"losses_{split}_{blocks.name}{last}.npz"
        of = f"model {self.model_digest}, text {self.texts()[split]}"
        if (kept := read_losses(path, of)) is not None:
            return kept
        print(f"Evaluating for {path}", flush=True)
        losses = WordLosses(*blocks.word_losses(inference(), self.corpus, split, path.name), model().count_params())
        write_losses(path, of, losses)
        return losses

    def _of_ngrams(self, split, blocks):
        path = ngram_file(self.folder.path, split)
        if (kept := read_losses(path, of_ngrams(self.corpus, split))) is None:
            raise ValueError(
                f"{path} is missing or holds the losses of another text: make the folder again with "
                "`python -m scripts.experiments.kneser_ney`."
            )
        return kept


def ngram_file(folder, split):
    """Returns the path of the losses of an n-gram model."""
    return Path(folder, f"losses_{split}.npz")


def of_ngrams(corpus, split):
    """Returns what the losses of an n-gram model belong to."""
    return f"text {corpus.metadata['splits'][split]['sha256']}"


def read_losses(path, of):
    """Returns the `WordLosses` of a file; None if there is no file, or its losses belong to something else."""
    if not path.is_file():
        return None
    with reading(path, "a file of losses", "Remove it."), open(path, "rb") as file, np.load(file) as kept:
        if kept["of"] != of:
            return None
        losses = WordLosses(*(kept[name] for name in WordLosses._fields))
        if losses.nll.ndim != 1 or losses.nll.shape != losses.words.shape or not np.isfinite(losses.nll).all():
            raise ValueError("it must hold a finite loss for each word")
        return losses


def write_losses(path, of, losses):
    """Writes the `WordLosses` of what the text `of` names, the whole file or nothing."""
    with writing(path):
        np.savez(partial(path), of=of, **losses._asdict())
        commit(path)


def open_runs(paths, **kwargs):
    """Returns the `Run` of each folder, after checking that the runs have one text.

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
            raise ValueError(
                f"{path} is a run of another text than {paths[0]}: only runs of one corpus can be compared."
            )
    return runs
