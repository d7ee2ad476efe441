"""Progress of long work, in lines."""

import sys
import time

import keras

EVERY, EVERY_OF_TRAINING = 10, 30  # seconds between two lines


class Progress:
    """Prints how much of a work is done and how long the rest will take, a line every few seconds.

    Args:
        what: What is counted, such as "batches of valid".
    """

    def __init__(self, what):
        self.what = what
        self._began = self._reported = time.monotonic()

    def __call__(self, done, total=None):
        """Reports that `done` are done, of `total` if that is known."""
        now = time.monotonic()
        if now - self._reported < EVERY:
            return
        self._reported = now
        of = f" of {total:,}, {duration((now - self._began) * (total - done) / done)} left" if total else ""
        print(f"{done:,}{of} ({self.what})", file=sys.stderr, flush=True)


class TrainingLines(keras.callbacks.Callback):
    """Prints how far training is, a line every 30 seconds.

    On a terminal, the progress bar of Keras shows the updates, and the lines show validations alone. List this
    callback after `Throughput` and `Backup`.

    Args:
        backup: The `Backup`, which knows the number of updates done.
        updates: Number of updates of the whole training.
        with_bar: Whether the progress bar is shown.
    """

    def __init__(self, backup, updates, with_bar=False):
        super().__init__()
        self.backup = backup
        self.updates = updates
        self.with_bar = with_bar
        self._reported = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        if not self.with_bar and self._is_due():
            logs = logs or {}
            line = f"update {self.backup.update:,} of {self.updates:,}: loss {logs.get('loss', float('nan')):.4f}"
            if "hours_left" in logs:
                line += f", {logs['tokens_per_second']:,.0f} tokens/s, {duration(3600 * logs['hours_left'])} left"
            print(line, flush=True)

    def on_test_batch_end(self, batch, logs=None):
        if self._is_due():
            line = "\n" if self.with_bar else ""  # the bar has begun one
            line += f"update {self.backup.update:,} of {self.updates:,}: validation, batch {batch + 1:,}"
            print(line, flush=True)

    def _is_due(self):
        due = time.monotonic() - self._reported >= EVERY_OF_TRAINING
        if due:
            self._reported = time.monotonic()
        return due


def duration(seconds):
    """Returns seconds as hours:minutes:seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
