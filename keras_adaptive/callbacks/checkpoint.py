import math
import os
import shutil
import tempfile

import keras

from keras_adaptive.files import commit, discard, partial


class Checkpoint(keras.callbacks.Callback):
    """Saves the model after every epoch as `last.keras`, and the best so far as `best.keras`.

    The best is the one with the lowest `val_loss`, the later one of equals; an epoch without validation is never
    the best. A file appears under its name only when it is complete, and the one before it stays until then. The
    best is in place before the last, so a run that breaks off between the two and repeats the epoch loses neither.
    To go on with training in mid-epoch, and to keep several states of it, take `Backup`.

    Args:
        run_dir: Folder to save in; made if need be.
        best: The `val_loss` of the `best.keras` that is there already, when training goes on without a `Backup`.
        writes: False in all processes but one of a training in several. They only take part: what replicas hold
            apart is read by all of them.

    Example:

    ```python
    model.fit(x, y, validation_data=(x_valid, y_valid), epochs=10, callbacks=[Checkpoint("run")])
    best = keras.saving.load_model("run/best.keras")
    ```
    """

    def __init__(self, run_dir, best=math.inf, writes=True):
        super().__init__()
        self.writes = writes
        self.run_dir = os.fspath(run_dir)
        self.best = best

    def get_state(self):
        return {"best": self.best}

    def set_state(self, state):
        self.best = state["best"]

    def on_train_begin(self, logs=None):
        if self.writes:
            os.makedirs(self.run_dir, exist_ok=True)

    def on_epoch_end(self, epoch, logs=None):
        if not self.writes:
            with tempfile.TemporaryDirectory() as folder:
                self.model.save(os.path.join(folder, "last.keras"))
            return
        last, best = (os.path.join(self.run_dir, name) for name in ("last.keras", "best.keras"))
        try:
            self.model.save(partial(last))
            val_loss = (logs or {}).get("val_loss", math.nan)
            if val_loss <= self.best:
                self.best = val_loss
                shutil.copyfile(partial(last), partial(best))
                commit(best)
            commit(last)
        except OSError:
            discard(last)
            discard(best)
            raise
