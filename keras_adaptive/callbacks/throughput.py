import collections
import time
from collections.abc import Callable

import keras

WINDOW = 100  # number of updates over which the speed is averaged
COMPILING = 2  # number of updates at the start of `fit` in which the backend traces and compiles


class Throughput(keras.callbacks.Callback):
    """Adds the speed, `tokens_per_second`, and the remaining time, `hours_left`, to the logs and the progress bar.

    The speed is averaged over the last 100 updates and includes loading their data. It excludes the first two updates
    of `fit`, in which backends compile, and everything between two epochs, such as validation. List this callback
    before callbacks that read the logs.

    Args:
        tokens_per_update: Number of tokens in an update, or a function without arguments that returns the
            number of tokens of the last update.
        updates_left: Function without arguments that returns the number of remaining updates. Optional: `hours_left` is
            added only if it is given. The remaining time includes validations.

    Raises:
        ValueError: If `tokens_per_update` is a number below 1.

    Example:

    ```python
    model.fit(x, y, batch_size=32, callbacks=[Throughput(32 * x.shape[1])])
    ```
    """

    def __init__(
        self, tokens_per_update: int | Callable[[], int], updates_left: Callable[[], int] | None = None
    ) -> None:
        super().__init__()
        if not callable(tokens_per_update) and tokens_per_update < 1:
            raise ValueError(
                f"`tokens_per_update` must be positive. Received: tokens_per_update={tokens_per_update}. "
                "It is the number of rows times their length, times the number of micro-batches."
            )
        self.tokens_per_update = tokens_per_update
        self.updates_left = updates_left
        self._validation = 0.0  # duration of the last validation, in seconds
        self._validation_began = None

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._updates = 0
        self._window = collections.deque(maxlen=WINDOW)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._began = None
        self._last_batch = -1

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        if self._began is None:
            self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        now = time.perf_counter()
        updates = batch - self._last_batch
        if self._updates >= COMPILING:
            self._window.append((updates, updates * self._tokens(), now - self._began))
        self._updates += updates
        self._began, self._last_batch = now, batch
        self._report(logs)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._report(logs)

    def on_test_begin(self, logs: dict | None = None) -> None:
        self._validation_began = time.perf_counter()

    def on_test_end(self, logs: dict | None = None) -> None:
        self._validation = time.perf_counter() - self._validation_began

    def _tokens(self):
        return self.tokens_per_update() if callable(self.tokens_per_update) else self.tokens_per_update

    def _report(self, logs):
        if self._window and logs is not None:
            updates, tokens, seconds = (sum(column) for column in zip(*self._window, strict=True))
            logs["tokens_per_second"] = tokens / seconds
            if self.updates_left is not None:
                per_update = seconds / updates + self._validation / ((self.params or {}).get("steps") or 1)
                logs["hours_left"] = self.updates_left() * per_update / 3600
