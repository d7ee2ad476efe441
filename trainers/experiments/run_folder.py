"""Folder of a run: flags, vocabulary, tokenizer and models. Evaluation and serving need only this folder."""

import contextlib
import functools
import os
import re
import shutil
from pathlib import Path

import filelock

from keras_adaptive.data import SPECIAL_WORDS, TextCodec, load_corpus, load_vocabulary, read_metadata
from keras_adaptive.files import check_new_folder, flush, json_text, read_text, reading, write_text, writing
from keras_adaptive.models.model_file import read_structure
from keras_adaptive.text import read_model
from trainers.experiments.experiment import Experiment, plain
from trainers.experiments.hyperparameters import RENAMED

BEFORE_FLAGS = {"lock", "vocabulary.txt", "merges.txt", "corpus.json", "partial_flags.txt"}  # files before flags.txt


class RunFolder:
    """Reads and writes the files of a training run.

    The folder contains flags.txt (the experiment, as a flagfile), vocabulary.txt, corpus.json, log.jsonl, tensorboard/,
    best.keras and last.keras, checkpoints/, and merges.txt for a corpus of sub-words.
    """

    def __init__(self, path):
        if not os.fspath(path):
            raise ValueError("The folder of a run must have a name: pass its path. Received: an empty name.")
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"

    @contextlib.contextmanager
    def claimed(self, experiment, corpus):
        """Writes the files of a new run, or checks that the folder holds this run, and locks out other trainings.

        If an error occurs before the first line of the log and the first checkpoint of a new run, its folder is
        removed, so that a training with corrected flags can use it. Another run's folder is not changed.
        """
        begun = self._file("flags.txt").exists()
        if self.path.exists() and not begun and set(os.listdir(self.path)) - BEFORE_FLAGS:
            raise ValueError(f"{self.path} is not empty and holds no run: pass another --run_dir.")
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with filelock.FileLock(self._file("lock"), timeout=0):  # released by the system if the process dies
                self._claim(experiment, corpus)
                try:
                    yield
                except Exception:
                    if not begun:
                        self._give_up()
                    raise
        except filelock.Timeout:
            raise ValueError(
                f"Another training uses {self.path}: wait until it ends, or pass another --run_dir."
            ) from None

    def _give_up(self):
        """Removes the folder of a run that has not begun to train."""
        log = self._file("log.jsonl")
        if not (log.exists() and log.stat().st_size) and not any(self.checkpoints.glob("*")):
            shutil.rmtree(self.path, ignore_errors=True)

    def _claim(self, experiment, corpus):
        if self._file("flags.txt").exists():
            self._compare_experiment(experiment)
            self._compare_vocabulary(corpus)
            self._compare_text(corpus)
            if self._validations() > 1 and not self.has_checkpoints:
                raise ValueError(f"{self.path} has no checkpoints to resume from: pass another --run_dir.")
            return
        if (subwords := corpus.subwords()) is not None:
            subwords.save(self._file("merges.txt"))
        self.write(experiment.flags_text(), corpus.vocabulary, corpus.metadata)

    def lengthen(self, experiment):
        """Replaces the flags of the run if an experiment has more updates and the same learning rates so far."""
        if experiment.lengthens(Experiment.of_run(self)):
            write_text(self._file("flags.txt"), experiment.flags_text())

    def _validations(self):
        """Returns the number of validations in the log. The first is logged before its checkpoint is saved."""
        log = self._file("log.jsonl")
        return read_text(log).count('"val_loss"') if log.is_file() else 0

    @property
    def has_checkpoints(self):
        """Whether the run has checkpoints, which may be damaged."""
        return any(self.checkpoints.glob("update_*.npz"))

    def check_empty(self):
        """Raises a ValueError if the folder is not empty, or cannot be created."""
        check_new_folder(self.path)
        if self.path.exists() and any(self.path.iterdir()):
            raise ValueError(f"{self.path} is not empty: pass another --run_dir.")

    def write(self, flags_text, vocabulary, metadata):
        """Writes the files that describe the run: vocabulary.txt, corpus.json and, last, the flags."""
        with writing(self.path):
            vocabulary.save(self._file("vocabulary.txt"))
            self._file("corpus.json").write_text(json_text(metadata, indent=2), encoding="utf-8")
            flush(self.path)
            write_text(self._file("flags.txt"), flags_text)

    def _compare_experiment(self, experiment):
        if self.is_converted or self.is_ngram:
            kind = "a converted model" if self.is_converted else "an n-gram model"
            raise ValueError(f"{self.path} holds {kind}, not a training run: pass another --run_dir.")
        old = Experiment.of_run(self)
        changed = experiment.differences(old)
        if changed and not experiment.lengthens(old):
            listed = ", ".join(f"--{name}={plain(new)} (was {plain(old)})" for name, (new, old) in changed.items())
            raise ValueError(
                f"{self.path} is a run with other flags: {listed}. Pass another --run_dir, or the same flags. More "
                "--updates continue a run only if its learning rates so far do not change, as those of a cosine over "
                f"all updates do: pass --init_from={self.path} and another --run_dir to go on from its best weights; a "
                "run that starts with --period can be lengthened."
            )

    def _compare_vocabulary(self, corpus):
        if self._metadata.get("merges") != corpus.metadata.get("merges"):
            raise ValueError(
                f"{self.path} has other sub-words than {corpus.data_dir}, or only one of them has sub-words: pass the "
                "corpus of the run, or another --run_dir."
            )
        ours, theirs = self._vocabulary(), corpus.vocabulary
        if ours.sha256 != theirs.sha256:
            raise ValueError(
                f"{self.path} has another vocabulary than {corpus.data_dir}, which has {difference(ours, theirs)}: "
                "pass the corpus of the run, or another --run_dir."
            )

    def _compare_text(self, corpus):
        for split in ("train", "valid"):
            ours, theirs = (metadata["splits"][split] for metadata in (self._metadata, corpus.metadata))
            if any(ours.get(name) != theirs.get(name) for name in ("sha256", "tokens", "lines", "unknown")):
                raise ValueError(
                    f"{self.path} has another {split} text than {corpus.data_dir}, which has {theirs['tokens']:,} "
                    f"tokens (was {ours['tokens']:,}): pass the corpus of the run, or another --run_dir."
                )

    def flags(self):
        """Returns the flags in flags.txt, a dict of strings. `Experiment.of_run` returns the experiment."""
        lines = self._read("flags.txt").splitlines()
        for line in lines or [""]:
            if not re.match(r"--(?!flagfile=)\w+=", line):
                raise ValueError(
                    f"{self._file('flags.txt')} must hold --NAME=VALUE lines only. Received: {line[:80]!r}."
                )
        values = dict(line.removeprefix("--").split("=", 1) for line in lines)
        return {RENAMED.get(name, name): value for name, value in values.items()}

    @property
    def length(self):
        """Number of tokens in a training row."""
        flags = self.flags()
        name = "bptt" if "bptt" in flags else "length"
        text = flags.get(name, "")
        if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
            raise ValueError(
                f"{self._file('flags.txt')} must hold --{name}=NUMBER. Received: {text[:80]!r}. Put the file back."
            )
        return int(text)

    @property
    def is_converted(self):
        """Whether the folder holds a converted published model, which has no experiment."""
        return "checkpoint" in self.flags()

    @property
    def is_ngram(self):
        """Whether the folder holds the losses of an n-gram model, and no model of Keras."""
        return "order" in self.flags()

    @property
    def of_streams(self):
        """Whether the model was trained on streams, for which it carries its state from batch to batch."""
        return self.flags().get("batching") == "streams"

    @property
    def of_sentences(self):
        """Whether the model was trained on single lines, each without the lines before it."""
        return self.flags().get("batching") == "sentences"

    @functools.cached_property
    def codec(self):
        """The `TextCodec` of the training text, with the vocabulary of the model."""
        return TextCodec.load(self.path)

    def _vocabulary(self):
        """Returns the vocabulary. Unlike `codec`, it needs no merges, which an n-gram model of sub-words lacks."""
        self._existing("vocabulary.txt")
        return load_vocabulary(self.path, self._metadata)

    @functools.cached_property
    def _metadata(self):
        return read_metadata(self._existing("corpus.json"))

    def corpus(self, data_dir=None):
        """Returns the corpus of the run, or another corpus with the same vocabulary."""
        data_dir = data_dir or self.flags().get("data_dir")
        if not data_dir:
            raise ValueError(
                f"{self.path} was converted without a corpus: pass --data_dir, a corpus that trainers.prepare made "
                "with the --dictionary of the model."
            )
        corpus = load_corpus(data_dir)
        self._compare_vocabulary(corpus)
        return corpus

    def model(self, name="best"):
        """Loads the best or the last model of the run, whose weights must be finite."""
        self.model_file(name)
        return read_model(self.path, name, len(self.codec.vocabulary))

    def structure(self, name="best"):
        """Returns the best or the last model of the run without its weights, which is read in no time."""
        return read_structure(self.model_file(name))

    def model_file(self, name="best"):
        """Returns the path of the best or the last model."""
        path = self._file(f"{name}.keras")
        if self.is_ngram:
            raise ValueError(
                f"{self.path} holds the losses of an n-gram model: only trainers.analyze, and trainers.evaluate with "
                "several runs, can read it."
            )
        if not path.exists():
            raise ValueError(f"{self.path} holds no {path.name} yet: train it with trainers.train.")
        return path

    def _file(self, name):
        return self.path / name

    def _existing(self, name):
        path = self._file(name)
        if not path.is_file():
            raise ValueError(f"{self.path} holds no run ({name} is missing): pass the --run_dir of a trained model.")
        return path

    def _read(self, name):
        with reading(path := self._existing(name), "a text in UTF-8", "Put the file back, or pass another --run_dir."):
            return read_text(path)


def difference(ours, theirs):
    """Describes the difference between the vocabularies of a run and a corpus: sizes, and the first other word."""
    sizes = f"{len(theirs):,} words (was {len(ours):,})"
    for number in range(len(SPECIAL_WORDS), min(len(ours), len(theirs))):
        (old, times), (new, new_times) = ((words.words[number], words.counts[number]) for words in (ours, theirs))
        if (old, times) != (new, new_times):
            return f"{sizes} and as id {number} {new!r}, {new_times} times (was {old!r}, {times} times)"
    return sizes
