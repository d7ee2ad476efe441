"""Prints the progress of long computations, in lines."""

import sys
import time

import keras

EVERY, EVERY_OF_TRAINING = 10, 30  # seconds between two lines


class Progress:
    """Prints the progress in items, such as "batches of valid", and the remaining time, a line every few seconds."""

    def __init__(self, what):
        self.what = what
        self._began = self._reported = time.monotonic()

    def __call__(self, done, total=None):
        """Reports that `done` items are done, of `total` if the total is known."""
        now = time.monotonic()
        if now - self._reported < EVERY:
            return
        self._reported = now
        of = f" of {total:,}, {duration((now - self._began) * (total - done) / done)} left" if total else ""
        print(f"{done:,}{of} ({self.what})", file=sys.stderr, flush=True)


class TrainingLines(keras.callbacks.Callback):
    """Prints the progress of training, the update that a `Backup` counts, a line every 30 seconds.

    On a terminal, the progress bar of Keras shows the updates, and the lines show only validations. The bar does not
    show the time left in hours, nor updates that were skipped if there are none. List this callback after all that read
    the logs.
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
        _shorten(logs)

    def on_epoch_end(self, epoch, logs=None):
        _shorten(logs)

    def on_test_batch_end(self, batch, logs=None):
        if self._is_due():
            line = "\n" if self.with_bar else ""  # the bar is on the current line
            line += f"update {self.backup.update:,} of {self.updates:,}: validation, batch {batch + 1:,}"
            print(line, flush=True)

    def _is_due(self):
        due = time.monotonic() - self._reported >= EVERY_OF_TRAINING
        if due:
            self._reported = time.monotonic()
        return due


def _shorten(logs):
    """Removes from the logs what the progress bar need not show."""
    if logs:
        logs.pop("hours_left", None)
        if not logs.get("skipped"):
            logs.pop("skipped", None)


def duration(seconds):
    """Returns seconds as hours:minutes:seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
