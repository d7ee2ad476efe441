import math
import os
import sys
import threading
import time
from typing import Any

import keras

TEMPORARY_FAILURE = 75  # EX_TEMPFAIL of sysexits.h: the same command may succeed


class TerminateOnHang(keras.callbacks.Callback):
    """Ends the process with status 75 when no batch has finished for some time, because another process hangs.

    A process that waits for another process in a collective operation reacts neither to an exception nor to a signal.
    Use the callback as a context manager around everything that may wait, including the start of the strategy. The
    process ends without cleaning up. Complete checkpoints of a `Backup` stay, and the same command resumes from them.

    Args:
        seconds: Longest time between the ends of two batches or epochs; infinity for no limit. It must be longer than
            the start of all processes, than compiling the model, and than a checkpoint, for which all processes wait.

    Raises:
        ValueError: If `seconds` is not positive.

    Example:

    ```python
    with TerminateOnHang(1800) as alive:
        model.fit(batches, callbacks=[backup, alive])
    ```
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        if not seconds > 0:
            raise ValueError(f"`seconds` must be positive. Received: seconds={seconds}.")
        self.seconds = seconds
        self._ended = threading.Event()

    def __enter__(self) -> "TerminateOnHang":
        self._alive()
        if self.seconds < math.inf:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._ended.set()

    def _alive(self, *_, **__):
        self._last = time.monotonic()

    on_train_begin = on_train_batch_end = on_test_batch_end = on_epoch_begin = on_epoch_end = on_train_end = _alive

    def _watch(self):
        while not self._ended.wait(max(self._last + self.seconds - time.monotonic(), 0.01)):
            if time.monotonic() - self._last >= self.seconds:
                end_at_once(
                    f"No batch ended for {self.seconds} seconds: another process hangs, or this is too short for a "
                    "batch. Run the same command again in every process."
                )


def end_at_once(message):
    """Prints a message and ends the process with status 75, without waiting for other processes as backends do."""
    try:
        print(message, file=sys.stderr, flush=True)
        sys.stdout.flush()
    finally:  # the process ends even if the reader of a pipe is gone
        os._exit(TEMPORARY_FAILURE)
