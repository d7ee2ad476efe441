"""A study on disk: trials with random hyper-parameters that several processes share.

The trials of a study are numbered from 0. The hyper-parameters of a trial depend only on its number, the seed and the
space, and not on the number of processes or their order.
"""

import contextlib
import json
import math
from pathlib import Path

import filelock
import numpy as np

from keras_adaptive.files import read_text, reading, write_json
from trainers.experiments.hyperparameters import HYPERPARAMETERS


def read_space(texts):
    """Returns `{name: (low, high)}` for texts NAME:LOW:HIGH such as "bptt:30:300", in their order."""
    kinds = {name: setting.type for name, setting in HYPERPARAMETERS.items() if setting.type in (int, float)}
    space = {}
    for text in texts:
        name, *bounds = text.split(":")
        try:
            low, high = map(kinds[name], bounds)
            if low > high:
                raise ValueError("the bounds are in the wrong order")
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"--space must be comma-separated NAME:LOW:HIGH with names in {', '.join(kinds)}. "
                f"Received: --space={text}."
            ) from error
        space[name] = low, high
    if len(space) < len(texts) or not space:
        raise ValueError(f"--space must contain at least one hyper-parameter, each once. Received: --space={texts}.")
    return space


def draw(space, seed, number):
    """Returns the hyper-parameters of a trial, a function of the space, the seed and the number of the trial."""
    random = np.random.RandomState(np.random.SeedSequence((seed, number)).generate_state(1))
    params = {}
    for name, (low, high) in space.items():
        if isinstance(low, int):
            params[name] = int(np.clip(np.round(random.uniform(low - 0.5, high + 0.5)), low, high))
        else:
            params[name] = random.uniform(low, high)
    return params


class SharedStudy:
    """A study in a folder, which several processes may open, of the `space` that `read_space` returns.

    A trial has a file when its result is known. Locks of the operating system, which end with their process, divide the
    other trials among the processes, so that a trial of a killed process is trained again. A study keeps its first
    `settings`, strings on which the results depend, and refuses others.
    """

    def __init__(self, folder, space, seed, settings):
        self.folder = Path(folder)
        self.space = space
        self.seed = seed
        self.folder.mkdir(parents=True, exist_ok=True)
        begun = self.folder / "study.json"
        with self.locked():
            if begun.exists():
                self._compare(settings, _read(begun))
            else:
                write_json(begun, settings)

    def _compare(self, settings, begun):
        changed = [name for name in sorted(settings | begun) if settings.get(name) != begun.get(name)]
        if changed:
            listed = ", ".join(f"{name}={settings.get(name)} (was {begun.get(name)})" for name in changed)
            raise ValueError(
                f"{self.folder} contains a search with other settings: {listed}. Pass the same flags, or another "
                "--output_dir."
            )

    def locked(self):
        """Returns a context in which no other process opens the study or writes its results."""
        return filelock.FileLock(self.folder / "lock")

    @contextlib.contextmanager
    def claimed(self, trials):
        """Yields the number of a trial, of `trials`, that has no result and that no other process trains, or None."""
        with contextlib.ExitStack() as locks:
            yield next((number for number in range(trials) if self._claim(number, locks)), None)

    def _claim(self, number, locks):
        """Tries to lock a trial until `locks` are closed. Returns whether it is locked and has no result."""
        if self._result(number).exists():
            return False
        try:
            locks.enter_context(filelock.FileLock(self.folder / f"trial_{number}.lock", timeout=0))
        except filelock.Timeout:
            return False
        return not self._result(number).exists()

    def _result(self, number):
        return self.folder / f"trial_{number}.json"

    def params(self, number):
        """Returns the hyper-parameters of a trial by name."""
        return draw(self.space, self.seed, number)

    def tell(self, number, perplexity, **facts):
        """Stores the result of a trial, a number that may be infinite, with other facts."""
        result = {"trial": number, "perplexity": perplexity, "hyper_parameters": self.params(number), **facts}
        write_json(self._result(number), result)

    def results(self, trials):
        """Returns a list of the results, as dicts, and how many of the first `trials` have none."""
        results = sorted(map(_read, self.folder.glob("trial_*.json")), key=lambda result: result["trial"])
        for result in results:
            result["perplexity"] = math.inf if result["perplexity"] is None else result["perplexity"]
        return results, trials - sum(self._result(number).exists() for number in range(trials))


def _read(path):
    with reading(path, "a file of a search", "Pass another --output_dir."):
        return json.loads(read_text(path))
