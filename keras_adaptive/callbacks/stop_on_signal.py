import signal
import sys
from collections.abc import Callable
from typing import Any

import keras

from keras_adaptive.callbacks.backup import Backup


class StopOnSignal(keras.callbacks.Callback):
    """Writes a checkpoint and ends training when the process receives SIGTERM or SIGINT (Ctrl-C).

    Use it as a context manager around `fit`, in the main thread. After a first signal, the current update or batch of
    validation finishes. The callback then writes a checkpoint and raises `SystemExit` with the code 143 or 130 (128
    plus the number of the signal), which tells a scheduler that the same command resumes. A second signal of the same
    kind ends the process immediately. List this callback after the `Backup`.

    Args:
        backup: The `Backup` that writes the checkpoint.
        all_reduce_max: Function that returns the largest of the integers that all processes pass to it, such as
            `Strategy.all_reduce_max`; needed for training in several processes. It is called after every batch, so that
            all processes stop after the same update.

    Example:

    ```python
    with StopOnSignal(backup) as stop:
        model.fit(batches, callbacks=[backup, stop])
    ```
    """

    def __init__(self, backup: Backup, all_reduce_max: Callable[[int], int] = int) -> None:
        super().__init__()
        self.backup = backup
        self.all_reduce_max = all_reduce_max
        self._received = 0
        self._handlers = {}

    def __enter__(self) -> "StopOnSignal":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._handlers[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exception: Any) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number, frame):
        self._received = number
        # The handler of the other signal stays: Python prints a traceback if it is removed while that signal arrives.
        signal.signal(number, signal.SIG_DFL)

    def _stop_if_asked(self, *_, **__):
        received = self.all_reduce_max(int(self._received))
        if not received:
            return
        self.backup.save()
        self.backup.wait()
        line = "\n" if sys.stdout.isatty() else ""  # the line may hold a progress bar
        print(
            f"{line}{signal.Signals(received).name}: stopped after update {self.backup.update}; the same training "
            f"resumes from {self.backup.path}",
            file=sys.stderr,
        )
        raise SystemExit(128 + received)

    on_train_batch_end = on_test_batch_end = on_epoch_end = _stop_if_asked
