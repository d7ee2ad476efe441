"""A study of Optuna: random hyper-parameters on disk that several processes share, each trained by one at a time.

The trials of a study are numbered from 0. The hyper-parameters of a trial depend on its number, the seed and the space
only, so that they are the same however many processes draw them, and in whatever order.
"""

import contextlib
from pathlib import Path

import filelock
import numpy as np
import optuna
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import TrialState

from keras_adaptive.files import reading
from trainers.hyperparameters import HYPERPARAMETERS

DISTRIBUTIONS = {float: FloatDistribution, int: IntDistribution}
FILE = "study.db"

optuna.logging.set_verbosity(optuna.logging.WARNING)


def read_space(texts):
    """Returns `{name: distribution}` of texts such as "bptt:30:300", in their order.

    Raises:
        ValueError: If a text is not NAME:LOW:HIGH of a hyper-parameter that is a number, or two have one name.
    """
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
                f"--space must be NAME:LOW:HIGH, with commas between them, of hyper-parameters that are numbers: "
                f"{names}. Received: {text}."
            ) from error
    if len(space) < len(texts) or not space:
        raise ValueError(f"--space must name one hyper-parameter at least, and each of them once. Received: {texts}.")
    return space


def draw(space, seed, number):
    """Returns the hyper-parameters of a trial: a function of the space, the seed and the trial's number."""
    seeds = np.random.SeedSequence((seed, number)).generate_state(1)
    sampler = optuna.samplers.RandomSampler(seed=int(seeds[0]))
    return optuna.create_study(sampler=sampler).ask(space).params


class SharedStudy:
    """A study in a folder, which several processes may open.

    SQLite holds it, whose transactions survive a process that is killed; locks of the operating system, which end with
    their process, divide the trials among the processes. A trial that has no result and no process is trained again.

    Args:
        folder: Folder of the study; it is made if it is missing.
        space: What `read_space` returns.
        seed: Seed of the hyper-parameters.
        settings: Dict of strings on which the results depend. A study keeps the settings that it began with.

    Raises:
        ValueError: If the study has begun with other settings.
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
                f"{self.folder} holds a search of other settings: {listed}. Pass the same flags, or another "
                "--output_dir."
            )

    def locked(self):
        """Returns a context in which no other process draws or claims a trial."""
        return filelock.FileLock(self.folder / "lock")

    @contextlib.contextmanager
    def claimed(self, trials, **attributes):
        """Claims a trial without a result that no other process trains, for as long as the context lasts.

        Args:
            trials: Number of trials of the study. A new one is drawn only while there are fewer.
            **attributes: What the study keeps with a new trial.

        Yields:
            A trial of Optuna, with its `number` and `params`; None if there is none.
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
        """Returns whether no other process has this trial, which is then this one's until `locks` are closed."""
        try:
            locks.enter_context(filelock.FileLock(self.folder / f"trial_{number}.lock", timeout=0))
        except filelock.Timeout:
            return False
        return True

    def tell(self, trial, value):
        """Stores the result of a trial: a number that may be infinite."""
        with self.locked():
            self._study.tell(trial.number, value)

    def results(self):
        """Returns the trials with a result, as dicts, by their numbers, and the number of trials without one."""
        trials = self._study.get_trials(deepcopy=False)
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        found = [
            {"trial": trial.number, "perplexity": trial.value, "hyper_parameters": trial.params, **trial.user_attrs}
            for trial in complete
        ]
        return found, len(trials) - len(complete)
