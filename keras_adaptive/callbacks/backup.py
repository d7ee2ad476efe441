import concurrent.futures
import json
import math
import os
import re
import warnings
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_adaptive.files import commit, discard, partial

NAME = re.compile(r"update_(\d{10})\.npz")


class Backup(keras.callbacks.Callback):
    """Checkpoints the complete training state, so that training resumes bit-identically from any update.

    A checkpoint is written every `every` updates and at the end of each epoch. The file `update_N.npz` holds the state
    after N updates: the variables of the model (including the seeds of seeded dropout), of the optimizer (including the
    loss scale) and of the metrics of the current epoch, the position of training, and the state of other callbacks. A
    file appears under its name when it is complete. It is an uncompressed zip, whose checksums reveal later damage.
    Training waits while the variables are copied, and for an earlier write that has not finished. A thread writes the
    file. An error in the thread ends training at the next update.

    `restore(model)` sets a model to the newest checkpoint and reports its position in `update`, `epoch` and `step`,
    which advance with training. The data of `fit` must then begin after `update` updates. Under torch, a dropout layer
    needs a seed: layers without a seed draw from a generator that does not belong to the model. Under TensorFlow,
    metrics given to `compile` restart, since they are created in the first update. List this callback last.

    Args:
        folder: Folder of the checkpoints, which must hold nothing else; created if it does not exist.
        every: Number of updates between two checkpoints. None writes checkpoints at the ends of epochs only.
        keep: Number of checkpoints to keep; older ones are removed.
        stateful: Callbacks, such as a `TrainLog`, whose state belongs to a checkpoint: `get_state()` returns a dict for
            JSON, and `set_state(state)` restores it. They must be the same, in the same order, in every training.
        writes: Whether this process writes. Exactly one of several processes writes, and all restore its checkpoints.

    Raises:
        ValueError: If `every` or `keep` is below 1; from `restore`, if no checkpoint is complete or the newest belongs
            to another model; from `fit`, if the folder holds checkpoints of a training that has not been restored.
        OSError: From `fit`, if a checkpoint cannot be written. Earlier checkpoints stay.
        FloatingPointError: From `fit`, if a weight is not finite, instead of writing a checkpoint.

    Example:

    ```python
    log = TrainLog("run/log.jsonl")
    backup = Backup("run/checkpoints", every=500, stateful=[log])
    backup.restore(model)  # built and compiled
    if 0 < backup.step < 1000:  # the rest of the epoch; at 1000 `StopOnSignal` stopped its validation
        model.fit(batches(backup.update), steps_per_epoch=1000 - backup.step, initial_epoch=backup.epoch,
                  epochs=backup.epoch + 1, callbacks=[log, backup])
    model.fit(batches(backup.update), steps_per_epoch=1000, initial_epoch=backup.epoch, epochs=9,
              callbacks=[log, backup])
    ```
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        every: int | None = None,
        keep: int = 3,
        stateful: Sequence[keras.callbacks.Callback] = (),
        writes: bool = True,
    ) -> None:
        super().__init__()
        if (every is not None and every < 1) or keep < 1:
            raise ValueError(f"`every` and `keep` must be at least 1. Received: every={every}, keep={keep}.")
        self.folder = os.path.abspath(folder)
        self.every = every
        self.keep = keep
        self.stateful = stateful
        self.writes = writes
        self.update = 0  # number of updates so far, including skipped ones
        self.epoch = 0  # number of the current epoch
        self.step = 0  # number of updates so far in this epoch
        self.path = None  # newest checkpoint that was restored or written
        self._metrics = None  # metrics of a restored epoch, which `fit` resets before the epoch begins
        self._writer = concurrent.futures.ThreadPoolExecutor(1, "backup")
        self._writing = None

    def restore(self, model: keras.Model) -> str | None:
        """Sets a model and the stateful callbacks to the newest complete checkpoint.

        A damaged checkpoint raises a warning, and the checkpoint before it is used. The model must be built and
        compiled. Returns the path of the checkpoint, or None if there is none.

        Raises:
            ValueError: If no checkpoint is complete, or the newest belongs to another model or optimizer.
        """
        paths = self._paths()
        for path in reversed(paths):
            try:
                state, arrays = read(path)
            except (MemoryError, PermissionError):
                raise
            except Exception as error:  # NumPy and zipfile raise many kinds of errors for damaged files
                reason = f"{type(error).__name__}: {error}"
                warnings.warn(f"{path} is damaged and is skipped ({reason}).", stacklevel=2)
                continue
            self._set(model, state, arrays)
            self.path = path
            return path
        if paths:
            raise ValueError(f"No checkpoint in {self.folder} is complete: train again, in another folder.")
        return None

    def _set(self, model, state, arrays):
        if not model.optimizer.built:  # a second build of a LossScaleOptimizer would create its variables again
            model.optimizer.build(model.trainable_variables)
        groups, self._metrics = variables(model), arrays["metrics"]
        # A checkpoint of a model that had fewer metrics lacks the last ones, which start from 0.
        newer = groups["metrics"][len(self._metrics) :]
        self._metrics += [np.zeros(variable.shape, "float32") for variable in newer]
        if len(groups["metrics"]) < len(self._metrics):  # Keras creates the missing ones when `fit` begins
            del arrays["metrics"]
        saved = {name: [array.shape for array in arrays[name]] for name in arrays}
        expected = {name: [tuple(variable.shape) for variable in groups[name]] for name in arrays}
        if saved != expected:
            raise ValueError(
                f"The newest checkpoint in {self.folder} belongs to another model or optimizer: pass the same, or "
                f"another folder. Received: {summary(expected)}, where the checkpoint has {summary(saved)}."
            )
        for name in arrays:
            assign(groups[name], arrays[name])
        for callback, callback_state in zip(self.stateful, state["callbacks"], strict=True):
            callback.set_state(callback_state)
        self.update, self.epoch, self.step = state["update"], state["epoch"], state["step"]

    def on_train_begin(self, logs: dict | None = None) -> None:
        if not self.writes:
            return
        os.makedirs(self.folder, exist_ok=True)
        for name in self._names():
            if NAME.fullmatch(name.removeprefix("partial_")) and name.startswith("partial_"):
                os.remove(os.path.join(self.folder, name))  # an earlier process was killed while it wrote the file
        if self.path is None and self._paths():
            raise ValueError(f"{self.folder} holds checkpoints: resume with `restore(model)`, or pass another folder.")

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.epoch = epoch
        metrics, self._metrics = self._metrics, None
        if metrics is None or not self.step:  # metrics saved after the last update of an epoch belong to its validation
            self.step = 0
        elif len(metrics) == len(variables(self.model)["metrics"]):
            assign(variables(self.model)["metrics"], metrics)
        self._last_batch = -1

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        done = batch - self._last_batch
        self._last_batch = batch
        self.update, self.step = self.update + done, self.step + done
        at_end = batch + 1 == (self.params or {}).get("steps")  # `on_epoch_end` writes the checkpoint of this update
        if self.every and not at_end and self.update // self.every > (self.update - done) // self.every:
            self.save()
        elif self._writing and self._writing.done():
            self.wait()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.epoch, self.step, self._metrics = epoch + 1, 0, None
        self.save()

    def on_train_end(self, logs: dict | None = None) -> None:
        self.wait()

    def save(self) -> None:
        """Writes a checkpoint of the current state in the background."""
        groups = variables(self.model)
        # All processes must read a variable that is sharded among them, even if only one process writes.
        arrays = {name: [ops.convert_to_numpy(variable) for variable in groups[name]] for name in groups}
        if not self.writes:
            return
        self.wait()
        state = {"update": self.update, "epoch": self.epoch, "step": self.step}
        state["callbacks"] = [callback.get_state() for callback in self.stateful]
        self.path = os.path.join(self.folder, f"update_{self.update:010}.npz")
        weights = {id(variable) for variable in self.model.trainable_variables}
        checked = [array for variable, array in zip(groups["model"], arrays["model"]) if id(variable) in weights]
        self._writing = self._writer.submit(self._write, self.path, self.update, state, arrays, checked)

    def wait(self) -> None:
        """Waits until the last checkpoint is written.

        Raises:
            OSError: If the checkpoint could not be written.
            FloatingPointError: If a weight is not finite.
        """
        if self._writing:
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self, path, update, state, arrays, weights):
        if not all(np.isfinite(array).all() for array in weights):
            raise FloatingPointError(
                f"A weight is not finite after update {update}: no checkpoint is written, and earlier ones stay. "
                "Lower the learning rate, warm up longer, or clip to a smaller norm."
            )
        try:
            write(path, state, arrays)
            self._prune(update)
        except OSError as error:
            discard(path)
            raise OSError(
                f"The checkpoint of update {update} could not be written to {path} ({error.strerror or error}). "
                "Earlier checkpoints stay, and training resumes from the newest once the cause is removed."
            ) from error

    def _prune(self, update):
        """Keeps the newest checkpoints up to this update; later ones, which were damaged at a restore, are removed."""
        paths = {int(NAME.fullmatch(os.path.basename(path))[1]): path for path in self._paths()}
        kept = sorted(number for number in paths if number <= update)[-self.keep :]
        for number in paths.keys() - set(kept):
            os.remove(paths[number])

    def _paths(self):
        """Returns the paths of the checkpoints, oldest first."""
        return [os.path.join(self.folder, name) for name in sorted(self._names()) if NAME.fullmatch(name)]

    def _names(self):
        return os.listdir(self.folder) if os.path.isdir(self.folder) else []


def variables(model):
    """Returns all variables that training changes: `{"model": [...], "optimizer": [...], "metrics": [...]}`."""
    metrics = model.metrics_variables
    of_metrics = {id(variable) for variable in metrics}
    of_model = [variable for variable in model.variables if id(variable) not in of_metrics]
    return {"model": of_model, "optimizer": model.optimizer.variables, "metrics": metrics}


def assign(group, arrays):
    """Assigns one array to each variable of a group."""
    for variable, array in zip(group, arrays, strict=True):
        if array.dtype.kind == "V":  # NumPy reads types that it does not know, such as bfloat16, as raw bytes
            array = array.view(ops.convert_to_numpy(variable).dtype)
        variable.assign(array)


def summary(shapes):
    """Returns a description of groups of shapes, for an error message."""
    sizes = {name: sum(map(math.prod, group)) for name, group in shapes.items()}
    return ", ".join(f"{sizes[name]:,} numbers in {len(shapes[name])} arrays of the {name}" for name in shapes)


def write(path, state, arrays):
    """Writes a state and groups of arrays, `{name: [array, ...]}`, into one file."""
    named = {f"{name}/{number}": array for name, group in arrays.items() for number, array in enumerate(group)}
    counts = {name: len(group) for name, group in arrays.items()}
    with open(partial(path), "wb") as file:
        np.savez(file, state=json.dumps({**state, "arrays": counts}), **named)
    commit(path)


def read(path):
    """Reads the state and the groups of arrays of a file, and compares their checksums."""
    with open(path, "rb") as whole, np.load(whole) as file:
        state = json.loads(str(file["state"]))
        counts = state.pop("arrays")
        return state, {name: [file[f"{name}/{number}"] for number in range(counts[name])] for name in counts}
