"""A study of Optuna on disk: trials with random hyper-parameters that several processes share.

The trials of a study are numbered from 0. The hyper-parameters of a trial depend only on its number, the seed and the
space, and not on the number of processes or their order.
"""

import contextlib
from pathlib import Path

import filelock
import numpy as np
import optuna
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import TrialState

from keras_adaptive.files import reading
from trainers.experiments.hyperparameters import HYPERPARAMETERS

DISTRIBUTIONS = {float: FloatDistribution, int: IntDistribution}
FILE = "study.db"

optuna.logging.set_verbosity(optuna.logging.WARNING)


def read_space(texts):
    """Returns `{name: distribution}` for texts NAME:LOW:HIGH such as "bptt:30:300", in their order."""
    space = {}
    for text in texts:
        name, *bounds = text.split(":")
        kind = HYPERPARAMETERS[name].type if name in HYPERPARAMETERS else None
        try:
            low, high = map(kind, bounds)
            space[name] = DISTRIBUTIONS[kind](low, high)
        except (KeyError, TypeError, ValueError) as error:
            names = ", ".join(name for name, setting in HYPERPARAMETERS.items() if setting.type in DISTRIBUTIONS)
            raise ValueError(
                f"--space must be comma-separated NAME:LOW:HIGH with names in {names}. Received: --space={text}."
            ) from error
    if len(space) < len(texts) or not space:
        raise ValueError(f"--space must contain at least one hyper-parameter, each once. Received: --space={texts}.")
    return space


def draw(space, seed, number):
    """Returns the hyper-parameters of a trial, a function of the space, the seed and the number of the trial."""
    seeds = np.random.SeedSequence((seed, number)).generate_state(1)
    sampler = optuna.samplers.RandomSampler(seed=int(seeds[0]))
    return optuna.create_study(sampler=sampler).ask(space).params


class SharedStudy:
    """A study in a folder, which several processes may open, of the `space` that `read_space` returns.

    The study is in SQLite, whose transactions survive if a process is killed. Locks of the operating system, which end
    with their process, divide the trials among the processes. A trial without a result and without a process is trained
    again. A study keeps its first `settings`, strings on which the results depend, and refuses others.
    """

    def __init__(self, folder, space, seed, settings):
        self.folder = Path(folder)
        self.space = space
        self.seed = seed
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.locked():
            with reading(self.folder / FILE, "a study of Optuna", "Pass another --output_dir."):
                storage = optuna.storages.RDBStorage(f"sqlite:///{self.folder.resolve() / FILE}")
                self._study = optuna.create_study(storage=storage, study_name="search", load_if_exists=True)
                begun = self._study.user_attrs.get("settings")
            if begun is None:
                self._study.set_user_attr("settings", settings)
            else:
                self._compare(settings, begun)

    def _compare(self, settings, begun):
        changed = [name for name in sorted(settings | begun) if settings.get(name) != begun.get(name)]
        if changed:
            listed = ", ".join(f"{name}={settings.get(name)} (was {begun.get(name)})" for name in changed)
            raise ValueError(
                f"{self.folder} contains a search with other settings: {listed}. Pass the same flags, or another "
                "--output_dir."
            )

    def locked(self):
        """Returns a context in which no other process draws or claims a trial."""
        return filelock.FileLock(self.folder / "lock")

    @contextlib.contextmanager
    def claimed(self, trials, **attributes):
        """Claims a trial without a result, or None, which no other process trains, for the duration of the context.

        A new trial, with these attributes, is drawn only if the study has fewer than `trials`.
        """
        with contextlib.ExitStack() as locks:
            with self.locked():
                trial = self._claim(trials, attributes, locks)
            yield trial

    def _claim(self, trials, attributes, locks):
        begun = self._study.get_trials(deepcopy=False)
        for trial in begun:
            if trial.state == TrialState.RUNNING and trial.number < trials and self._lock(trial.number, locks):
                return trial
        number = len(begun)
        if number >= trials or not self._lock(number, locks):
            return None
        values = draw(self.space, self.seed, number)
        drawn = {"params": values, "distributions": self.space, "user_attrs": attributes}
        self._study.add_trial(optuna.trial.create_trial(state=TrialState.RUNNING, **drawn))
        return self._study.get_trials(deepcopy=False)[number]

    def _lock(self, number, locks):
        """Tries to lock a trial until `locks` are closed. Returns whether no other process has locked it."""
        try:
            locks.enter_context(filelock.FileLock(self.folder / f"trial_{number}.lock", timeout=0))
        except filelock.Timeout:
            return False
        return True

    def tell(self, trial, value):
        """Stores the result of a trial, a number that may be infinite."""
        with self.locked():
            self._study.tell(trial.number, value)

    def results(self):
        """Returns a list of the trials with a result, as dicts, and the number of trials without a result."""
        trials = self._study.get_trials(deepcopy=False)
        complete = [
            {"trial": trial.number, "perplexity": trial.value, "hyper_parameters": trial.params, **trial.user_attrs}
            for trial in trials
            if trial.state == TrialState.COMPLETE
        ]
        return complete, len(trials) - len(complete)
