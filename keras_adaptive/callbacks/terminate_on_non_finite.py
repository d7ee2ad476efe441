import math

import keras
from keras import ops


class TerminateOnNonFinite(keras.callbacks.Callback):
    """Ends training with a diagnosis when the loss or the gradients of several updates in a row are not finite.

    A `LanguageModel` skips such updates. Single ones are harmless, and determine the loss scale under float16. Many in
    a row mean that training has diverged.

    Args:
        limit: Number of updates in a row after which training ends.

    Raises:
        ValueError: If `limit` is below 1; from `fit`, if the batch of the first of these updates holds ids outside the
            vocabulary.
        FloatingPointError: From `fit`, at the last of these updates.

    Example:

    ```python
    model.fit(batches, callbacks=[SGDR(schedule), TerminateOnNonFinite(limit=20)])
    ```
    """

    def __init__(self, limit: int = 20) -> None:
        super().__init__()
        if limit < 1:
            raise ValueError(f"`limit` must be at least 1 update. Received: limit={limit}.")
        self.limit = limit
        self._in_a_row = 0

    def get_state(self) -> dict:
        return {"in_a_row": self._in_a_row}

    def set_state(self, state: dict) -> None:
        self._in_a_row = state["in_a_row"]

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        logs = logs or {}
        values = {name: logs.get(name, 0.0) for name in ("loss", "gradient_norm")}
        if all(map(math.isfinite, values.values())):
            self._in_a_row = 0
            return
        if self._in_a_row == 0 and hasattr(self.model, "check_ids"):
            self.model.check_ids()  # batches with ids outside the vocabulary have no finite loss
        self._in_a_row += 1
        if self._in_a_row >= self.limit:
            raise FloatingPointError(self._diagnosis(**values))

    def _diagnosis(self, loss, gradient_norm):
        optimizer = self.model.optimizer
        numbers = (optimizer.iterations, optimizer.learning_rate)
        updates, rate = (ops.convert_to_numpy(number).item() for number in numbers)
        return (
            f"{self._in_a_row} updates in a row, after {updates} good ones, were not finite and have been skipped. "
            f"The last one had loss {loss:.6g}, gradient norm {gradient_norm:.6g} and learning rate {rate:.6g}. Lower "
            "the learning rate, warm up longer or clip to a smaller norm; in mixed_float16, try mixed_bfloat16."
        )
