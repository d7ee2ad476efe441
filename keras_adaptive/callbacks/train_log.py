import json
import math
import os
import time

import keras
import numpy as np
from keras import ops

from keras_adaptive.files import writing
from keras_adaptive.metrics.perplexity import perplexity

LOGS = ("learning_rate", "gradient_norm", "tokens_per_second", "skipped")  # the last value of each is written
IF_KNOWN = ("hours_left",)  # written only if the logs contain them


class TrainLog(keras.callbacks.Callback):
    """Logs training as JSON lines: one object every `every` updates, and one object per validation.

    A training object holds:

    - `update`: number of updates so far, including skipped ones.
    - `loss` and `perplexity`: over the tokens since the previous object, in nats per token. Keras' own logs are means
      since the start of the epoch.
    - `learning_rate`, `gradient_norm`, `tokens_per_second`: the last values of the logs.
    - `skipped`: number of skipped updates in the epoch, if the model counts them.
    - `hours_left`: if `Throughput` reports it.
    - `tokens`: number of tokens trained on; `seconds`: time spent in `fit`.

    A validation object holds `update`, `val_loss`, `val_perplexity` and other validation metrics, `tokens` and
    `seconds`. A value that is unknown or not finite is null. Each line is written immediately, and appended to an
    existing file.

    As one of the `stateful` callbacks of a `Backup`, the log resumes from the checkpoint: later lines are removed from
    the file, and all numbers except times equal the numbers of an uninterrupted training.

    The model must have a `loss_tracker`, a `keras.metrics.Mean` weighted by tokens, as a `LanguageModel` has. The other
    values come from the logs: list `SGDR` and `Throughput` before this callback.

    Args:
        path: Path of the file to write; its folder is created if it does not exist.
        every: Number of updates between two objects.
        tensorboard_dir: Folder to which the same numbers are written for TensorBoard. Optional. It needs the package
            tensorboard, but not TensorFlow.

    Raises:
        ValueError: If `every` is below 1, or at the start of `fit` if the model has no `loss_tracker`.

    Example:

    ```python
    model.fit(batches, callbacks=[SGDR(schedule), Throughput(4096), TrainLog("run/log.jsonl", every=100)])
    losses = [json.loads(line).get("loss") for line in Path("run/log.jsonl").read_text().splitlines()]
    ```
    """

    def __init__(
        self, path: str | os.PathLike, every: int = 100, tensorboard_dir: str | os.PathLike | None = None
    ) -> None:
        super().__init__()
        if every < 1:
            raise ValueError(f"`every` must be at least 1 update. Received: every={every}.")
        self.path = os.fspath(path)
        self.every = every
        self.tensorboard_dir = tensorboard_dir
        self._length = None  # the file is cut to this length before training resumes
        self._updates = None
        self._tokens = self._seconds = 0.0
        self._interval = np.zeros(3)  # sums since the last object: training loss, nats of words, number of tokens
        self._seen = np.zeros(3)  # part of the sums of this epoch that intervals already include
        self._logs = {}
        self._in_epoch = self._amid_epoch = False

    def get_state(self) -> dict:
        sums = {name: getattr(self, f"_{name}").tolist() for name in ("interval", "seen")}
        numbers = {"updates": self._updates, "tokens": self._tokens, "seconds": self._passed()}
        logs = {name: finite(value) for name, value in self._last().items()}
        with open(self.path, "ab") as file:
            os.fsync(file.fileno())  # a power loss never removes lines that a checkpoint refers to
        return {**sums, **numbers, "logs": logs, "in_epoch": self._in_epoch, "length": os.path.getsize(self.path)}

    def set_state(self, state: dict) -> None:
        self._interval, self._seen = (np.array(state[name]) for name in ("interval", "seen"))
        self._updates, self._tokens, self._seconds = (state[name] for name in ("updates", "tokens", "seconds"))
        self._length, self._logs = state["length"], state["logs"]
        self._in_epoch = self._amid_epoch = state["in_epoch"]

    def on_train_begin(self, logs: dict | None = None) -> None:
        if not hasattr(self.model, "loss_tracker"):
            raise ValueError(
                "`TrainLog` needs a model with a `loss_tracker`, a `keras.metrics.Mean` weighted by tokens. "
                f"Received: a model of class {type(self.model).__name__}. Use a `LanguageModel`, or add the attribute."
            )
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        with open(self.path, "ab") as file:
            length = file.tell() if self._length is None else min(self._length, file.tell())
            if (whole := _whole_lines(self.path, length)) < file.tell():
                file.truncate(whole)
        self._length = None
        self._scalars = self._scalar_writer()
        self._began = time.perf_counter()
        if self._updates is None:
            self._updates = int(ops.convert_to_numpy(self.model.optimizer.iterations))

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        if not self._amid_epoch:
            self._seen = np.zeros(3)
        self._in_epoch, self._amid_epoch = True, False

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._updates += 1
        self._logs = logs or {}
        if self._updates % self.every == 0:
            self._collect()
            self._write_interval()
            self._interval = np.zeros(3)

    def on_test_begin(self, logs: dict | None = None) -> None:
        self._end_of_epoch()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._end_of_epoch()
        self._amid_epoch = False
        validated = {name: value for name, value in (logs or {}).items() if name.startswith("val_")}
        if "val_loss" in validated:
            self._write({"val_perplexity": perplexity(validated["val_loss"]), **validated})

    def on_train_end(self, logs: dict | None = None) -> None:
        self._length = os.path.getsize(self.path)
        if self._interval[-1]:
            self._write_interval()  # another `fit` replaces this line
        self._seconds = self._passed()
        if self._scalars:
            self._scalars.close()

    def _passed(self):
        return self._seconds + time.perf_counter() - self._began

    def _scalar_writer(self):
        if self.tensorboard_dir is None:
            return None
        from tensorboard.summary import Writer

        return Writer(os.fspath(self.tensorboard_dir))

    def _end_of_epoch(self):
        """Reads the sums of the tracker before validation or the next epoch resets it."""
        if self._in_epoch:
            self._collect()
            self._in_epoch = False

    def _collect(self):
        loss = self.model.loss_tracker
        words = getattr(self.model, "perplexity_tracker", loss)
        seen = np.array([float(ops.convert_to_numpy(value)) for value in (loss.total, words.total, loss.count)])
        self._interval += seen - self._seen
        self._tokens += (seen - self._seen)[-1]
        self._seen = seen

    def _write_interval(self):
        *sums, tokens = self._interval
        loss, words = (total / tokens if tokens else math.nan for total in sums)
        self._write({"loss": loss, "perplexity": perplexity(words), **self._last()})

    def _last(self):
        """Returns the last value of every entry of the logs that is written."""
        names = (*LOGS, *(name for name in IF_KNOWN if name in self._logs))
        return {name: self._logs.get(name) for name in names}

    def _write(self, values):
        record = {"update": self._updates}
        record |= {name: finite(value) for name, value in values.items()}
        record |= {"tokens": round(self._tokens), "seconds": round(self._passed(), 3)}
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")
        for name, value in values.items():
            if self._scalars and finite(value) is not None:
                self._scalars.add_scalar(name, finite(value), record["update"])


def _whole_lines(path, length):
    """Returns the length in bytes of the complete lines among the first `length` bytes of a log.

    A power loss may leave half a line or zeros at the end.
    """
    with open(path, "rb") as file:
        lines = file.read(length).splitlines(keepends=True)
    while lines and not _is_record(lines[-1]):
        lines.pop()
    return sum(map(len, lines))


def _is_record(line):
    try:
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    except ValueError:
        return False


def finite(value):
    return float(value) if value is not None and math.isfinite(value) else None
