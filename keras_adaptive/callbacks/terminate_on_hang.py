import math
import os
import sys
import threading
import time

import keras

TEMPORARY_FAILURE = 75  # EX_TEMPFAIL of sysexits.h: the same command may succeed


class TerminateOnHang(keras.callbacks.Callback):
    """Ends the process with status 75 when no batch ends for a while, because another process of the training hangs.

    A process that waits for another one in a collective operation returns to Python neither for an exception nor for a
    signal. Use the callback as a context manager around everything that waits, the start of the strategy included. The
    process ends without cleaning up: what a `Backup` has completed stays, and the same command resumes from it.

    Args:
        seconds: Time without the end of a batch or epoch; infinity for no limit. It must be longer than all processes
            take to start, than compiling the model, and than a checkpoint, for which all processes wait.

    Raises:
        ValueError: If `seconds` is not positive.

    Example:

    ```python
    with TerminateOnHang(1800) as alive:
        model.fit(batches, callbacks=[backup, alive])
    ```
    """

    def __init__(self, seconds):
        super().__init__()
        if not seconds > 0:
            raise ValueError(f"`seconds` must be positive. Received: seconds={seconds}.")
        self.seconds = seconds
        self._ended = threading.Event()

    def __enter__(self):
        self._alive()
        if self.seconds < math.inf:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *exception):
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
    """Ends the process with status 75 and a message, without waiting for other processes, as backends do at the end."""
    try:
        print(message, file=sys.stderr, flush=True)
        sys.stdout.flush()
    finally:  # even if nobody reads the pipe any more
        os._exit(TEMPORARY_FAILURE)
