import math
import os
import shutil
import tempfile

import keras

from keras_adaptive.backend.checks import non_finite
from keras_adaptive.files import commit, discard, partial, writing


class SaveModels(keras.callbacks.Callback):
    """Saves the model after every epoch as `last.keras`, and the best model so far as `best.keras`.

    The best model has the lowest `val_loss`. Of two equal models, the later one is saved. An epoch without validation
    never yields the best model. A file appears under its name only when it is complete; the previous file stays until
    then. The best model is written before the last model, so that a run that stops between the two and repeats the
    epoch loses neither. Use `Backup` to resume training within an epoch and to keep several states.

    If a weight is not finite, training ends and the model is not saved.

    Args:
        run_dir: Folder to save in; created if it does not exist.
        best: The `val_loss` of an existing `best.keras`, if training resumes without a `Backup`.
        writes: Whether this process writes. Exactly one of several processes writes. The others must have the callback
            too, because all processes must read variables that are sharded among them.
        patience: Number of validations in a row without a lower `val_loss` after which training ends. Optional.

    Raises:
        FloatingPointError: From `fit`, if a weight is not finite.

    Example:

    ```python
    model.fit(x, y, validation_data=(x_valid, y_valid), epochs=10, callbacks=[SaveModels("run")])
    best = keras.saving.load_model("run/best.keras")
    ```
    """

    def __init__(
        self, run_dir: str | os.PathLike, best: float = math.inf, writes: bool = True, patience: int | None = None
    ) -> None:
        super().__init__()
        self.writes = writes
        self.run_dir = os.fspath(run_dir)
        self.best = best
        self.patience = patience
        self.since_best = 0  # number of validations since the best one

    def get_state(self) -> dict:
        return {"best": self.best, "since_best": self.since_best}

    def set_state(self, state: dict) -> None:
        self.best, self.since_best = state["best"], state["since_best"]

    @property
    def has_ended(self) -> bool:
        """Whether `patience` validations have passed without improvement, so that training must not continue."""
        return self.patience is not None and self.since_best >= self.patience

    def on_train_begin(self, logs: dict | None = None) -> None:
        if self.writes:
            os.makedirs(self.run_dir, exist_ok=True)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if weight := non_finite(self.model.weights):
            raise FloatingPointError(
                f"The weight {weight} is not finite after epoch {epoch + 1}: no model is written, and earlier files "
                "stay. Lower the learning rate, warm up longer, or clip to a smaller norm."
            )
        val_loss = (logs or {}).get("val_loss")
        if val_loss is not None:
            self.since_best = 0 if val_loss < self.best else self.since_best + 1
        self._save(math.nan if val_loss is None else val_loss)
        if self.has_ended:
            self.model.stop_training = True

    def _save(self, val_loss):
        """Writes the last model, and the best model if `val_loss` is the lowest so far."""
        is_best = val_loss <= self.best
        if not self.writes:
            self.best = val_loss if is_best else self.best
            with tempfile.TemporaryDirectory() as folder:
                self.model.save(os.path.join(folder, "last.keras"))
            return
        last, best = (os.path.join(self.run_dir, name) for name in ("last.keras", "best.keras"))
        try:
            with writing(last):
                self.model.save(partial(last))
                if is_best:
                    self.best = val_loss
                    shutil.copyfile(partial(last), partial(best))
                    commit(best)
                commit(last)
        except OSError:
            discard(last)
            discard(best)
            raise
