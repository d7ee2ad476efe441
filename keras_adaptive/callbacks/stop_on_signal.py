import signal
import sys

import keras


class StopOnSignal(keras.callbacks.Callback):
    """Writes a checkpoint and ends training when the process receives SIGTERM or SIGINT (Ctrl-C).

    Use it as a context manager around `fit`, in the main thread. After a first signal the current update, or batch of
    validation, finishes. Then the callback writes a checkpoint and raises `SystemExit` with the code 143 or 130 (128
    plus the number of the signal), which tells a scheduler that the same command resumes. The same signal once more
    ends the process at once. List this callback after the `Backup`.

    Args:
        backup: The `Backup` that writes the checkpoint.
        largest: Function from an integer to the largest integer that any process passes, for training in several
            processes. It is called after every batch, so that all processes stop after the same update.

    Example:

    ```python
    with StopOnSignal(backup) as stop:
        model.fit(batches, callbacks=[backup, stop])
    ```
    """

    def __init__(self, backup, largest=int):
        super().__init__()
        self.backup = backup
        self.largest = largest
        self._received = 0
        self._handlers = {}

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self._handlers[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exception):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number, frame):
        self._received = number
        # The handler of the other signal stays: where both arrive at once, Python would find it gone and complain.
        signal.signal(number, signal.SIG_DFL)

    def on_train_batch_end(self, batch, logs=None):
        self._stop_if_asked()

    def on_test_batch_end(self, batch, logs=None):
        self._stop_if_asked()

    def on_epoch_end(self, epoch, logs=None):
        self._stop_if_asked()

    def _stop_if_asked(self):
        received = self.largest(int(self._received))
        if not received:
            return
        self.backup.save()
        self.backup.wait()
        line = "\n" if sys.stdout.isatty() else ""  # a progress bar may stand on the line
        print(
            f"{line}{signal.Signals(received).name}: stopped after update {self.backup.update}; the same training "
            f"resumes from {self.backup.path}",
            file=sys.stderr,
        )
        raise SystemExit(128 + received)
