import signal
import sys

import keras


class StopOnSignal(keras.callbacks.Callback):
    """Ends training in good order when the process is asked to stop: the update, a checkpoint, and then the process.

    Used as a context manager around `fit`, from the main thread. A first SIGTERM or SIGINT (Ctrl-C) lets the update in
    progress, or the batch of validation, end, writes a checkpoint and raises `SystemExit` with the code 143 or 130
    (128 plus the number of the signal), by which a scheduler knows that the same command goes on. A second signal ends
    the process at once. List this callback behind the `Backup`.

    Args:
        backup: The `Backup` that writes the checkpoint.
        largest: Of a training in several processes, a function from a number to the largest of those that all of them
            pass to it, so that all stop behind the same update when one is asked to; it is called behind every batch.

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
        for again in self._handlers:
            signal.signal(again, signal.SIG_DFL)

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
        print(
            f"{signal.Signals(received).name}: stopped behind update {self.backup.update}; the same training goes on "
            f"from {self.backup.path}",
            file=sys.stderr,
        )
        raise SystemExit(128 + received)
