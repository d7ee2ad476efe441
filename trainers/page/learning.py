"""Reads the learning curve, losses, flags and status of a run."""

import json
import math
import os
import re
import threading

import filelock

from keras_adaptive.files import read_json_lines, read_text, reading

MOST = 2_000  # lines of a learning curve
DAMAGED = "a result of trainers.evaluate", "Remove it, or evaluate again."


class Learning:
    """Reads the files of a `RunFolder`, which may be training."""

    def __init__(self, folder):
        self.folder = folder
        self._read = None, []
        self._asking = threading.Lock()

    def curve(self, after=0):
        """Returns the lines of log.jsonl after the update `after`, and its own validations, which are written later.

        Returns at most 2,000 training lines of a long log.
        """
        lines = [line for line in self._lines() if _is_new(line, after)]
        training = [line for line in lines if "val_loss" not in line]
        step = -(-len(training) // MOST) or 1
        kept = set(map(id, training[::-1][::step]))  # including the newest
        return [line for line in lines if "val_loss" in line or id(line) in kept]

    def frequency(self):
        """Returns the split and the losses by frequency of the newest evaluation: `(name, bins)`, or `(None, [])`."""
        files = [path for split in ("test", "valid") if (path := self._file(f"evaluation_{split}.json")).is_file()]
        if not files:
            return None, []
        newest = max(files, key=lambda path: path.stat().st_mtime)
        with reading(newest, *DAMAGED):
            result = json.loads(read_text(newest))
            bins = [
                {"from": part["low"], "to": part["high"], "words": part["tokens"], "bits": part["nll"] / math.log(2)}
                for part in result["by_frequency"]
            ]
        return result["split"], bins

    def flags(self):
        """Returns the flags of the run, `{name: text}`, and only the last part of paths, since others see the page."""
        return {name: re.split(r"[/\\]", value.rstrip("/\\"))[-1] for name, value in self.folder.flags().items()}

    def is_training(self):
        """Returns whether a training is using the folder."""
        updates = self.folder.flags().get("updates", "")
        lines = self._lines()
        done = lines[-1]["update"] if lines and "val_loss" in lines[-1] else 0
        if not self._file("lock").exists() or (updates.isdecimal() and done >= int(updates)):
            return False
        with self._asking:  # otherwise one thread's lock would look like a training to another
            try:
                with filelock.FileLock(self._file("lock"), timeout=0):
                    return False
            except (filelock.Timeout, OSError):
                return True

    def _lines(self):
        """Returns the lines of the log, read again when the file has changed."""
        path = self._file("log.jsonl")
        try:
            found = os.stat(path)
        except OSError:
            return []
        version = found.st_mtime_ns, found.st_size
        if version != self._read[0]:
            lines = [line for line in read_json_lines(path) if type(line.get("update")) is int]
            self._read = version, lines
        return self._read[1]

    def _file(self, name):
        return self.folder.path / name


def _is_new(line, after):
    return line["update"] > after or (line["update"] == after and "val_loss" in line)
