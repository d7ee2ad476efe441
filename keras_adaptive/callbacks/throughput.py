import collections
import time

import keras

WINDOW = 100  # updates that the speed is averaged over
COMPILING = 2  # first updates of a `fit`, in which the backend traces and compiles


class Throughput(keras.callbacks.Callback):
    """Adds `tokens_per_second`, and `hours_left` to the end of training, to the logs and so to Keras' progress bar.

    The speed is measured over the last 100 updates and includes loading their data. It excludes the first two updates
    of a `fit`, in which backends compile, and everything between two epochs, such as validation. List this callback
    before callbacks that read the logs.

    Args:
        tokens_per_update: Number of tokens in an update, or a function without arguments that returns the
            number of tokens of the last update.
        updates_left: Function without arguments that returns the number of updates to the end of training. Optional:
            without it there is no `hours_left`, which counts the validations too.

    Raises:
        ValueError: If `tokens_per_update` is a number below 1.

    Example:

    ```python
    model.fit(x, y, batch_size=32, callbacks=[Throughput(32 * x.shape[1])])
    ```
    """

    def __init__(self, tokens_per_update, updates_left=None):
        super().__init__()
        if not callable(tokens_per_update) and tokens_per_update < 1:
            raise ValueError(
                f"`tokens_per_update` must be positive. Received: tokens_per_update={tokens_per_update}. "
                "It is rows times length, times the micro-batches of an update."
            )
        self.tokens_per_update = tokens_per_update
        self.updates_left = updates_left
        self._validation = 0.0  # seconds of the last one
        self._validation_began = None

    def on_train_begin(self, logs=None):
        self._updates = 0
        self._window = collections.deque(maxlen=WINDOW)

    def on_epoch_begin(self, epoch, logs=None):
        self._began = None
        self._last_batch = -1

    def on_train_batch_begin(self, batch, logs=None):
        if self._began is None:
            self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        updates = batch - self._last_batch
        if self._updates >= COMPILING:
            self._window.append((updates, updates * self._tokens(), now - self._began))
        self._updates += updates
        self._began, self._last_batch = now, batch
        self._report(logs)

    def on_epoch_end(self, epoch, logs=None):
        self._report(logs)

    def on_test_begin(self, logs=None):
        self._validation_began = time.perf_counter()

    def on_test_end(self, logs=None):
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
